"""The images of a run: the first so many, some of the training images in the place of the test images, averaged down."""

import dataclasses
from typing import Any

import numpy as np

from ...datasets import DataError
from ...datasets import images as data
from ...runner import UserError


def read(dataset: str, numbers: Any, progress: bool) -> data.Images:
    """What the numbers ask for; the files are the publisher's, wherever `lagrax.datasets.images.load` finds them."""
    try:
        images = data.load(dataset, numbers.data_dir or None, progress=progress)
        images = images.limited(numbers.limit_train or None, numbers.limit_test or None)
    except DataError as error:
        raise UserError(str(error)) from None
    return smaller(held_out(images, numbers.validation), numbers.size)


def held_out(images: data.Images, count: int) -> data.Images:
    """The last `count` training images in the place of the test images, which are not looked at; 0 changes nothing."""
    if not count:
        return images
    kept = len(images.train_labels) - count
    if kept < 1:
        raise UserError(f"validation = {count}, expected less than the {len(images.train_labels)} training images there are")
    return dataclasses.replace(
        images,
        train_images=images.train_images[:kept],
        train_labels=images.train_labels[:kept],
        test_images=images.train_images[kept:],
        test_labels=images.train_labels[kept:],
        notes=(*images.notes, f"{images.name}: tested on the last {count} training images, not on test images"),
    )


def smaller(images: data.Images, size: float) -> data.Images:
    """Square images averaged down to `size` × `size` pixels; up to 1 it is a fraction of the size they have."""
    sides = images.train_images.shape[-1]
    wanted = pixels(size, sides)
    if wanted == sides:
        return images
    if not 1 <= wanted < sides:
        raise UserError(
            f"size = {size:g}, expected 1 to {sides} for the images of {images.name}, or a fraction such as 0.5: images are "
            "averaged down and never blown up"
        )
    average = shares(sides, wanted)
    apply = lambda x: np.rint(np.einsum("ah,nchw,bw->ncab", average, x, average, optimize=True)).astype(np.uint8)
    return dataclasses.replace(images, train_images=apply(images.train_images), test_images=apply(images.test_images))


def pixels(size: float, sides: int) -> int:
    """Of a side: a number up to 1 is a fraction of `sides`, which has to be whole."""
    wanted = size * sides if size <= 1 else size
    return round(wanted) if wanted == round(wanted) else 0


def shares(sides: int, wanted: int) -> np.ndarray:
    """(wanted, sides), in float32: how much of each new pixel every old one makes up, by the length that they share."""
    old, new = np.arange(sides + 1) / sides, np.arange(wanted + 1) / wanted
    overlap = np.minimum(new[1:, None], old[1:]) - np.maximum(new[:-1, None], old[:-1])
    return (wanted * np.maximum(overlap, 0)).astype(np.float32)
