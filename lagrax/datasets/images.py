"""Images with labels: MNIST, CIFAR-10, SVHN and scikit-learn's digits, in the formats that their publishers use.

| name | images | shape (c, h, w) | files |
|---|---|---|---|
| `digits` | 1437 + 360 | (1, 8, 8) | none: part of scikit-learn |
| `mnist` | 60,000 + 10,000 | (1, 28, 28) | `train-images-idx3-ubyte.gz` and so on, gzip or not |
| `cifar10` | 50,000 + 10,000 | (3, 32, 32) | `data_batch_1.bin` to `_5.bin`, `test_batch.bin`; or `cifar-10-binary.tar.gz` |
| `svhn` | 73,257 + 26,032 | (3, 32, 32) | `train_32x32.mat`, `test_32x32.mat`; for non-commercial use only |
"""

import dataclasses
import difflib
import os
import sys
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int32, UInt8

from . import _files as files
from ._formats import CLASSES, DataError, Labelled, labelled, read_archived_batches, read_batch, read_idx, read_mat

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # training images and labels, test images and labels

_PUBLISHED = {"digits": (1437, 360), "mnist": (60_000, 10_000), "cifar10": (50_000, 10_000), "svhn": (73_257, 26_032)}
"""How many images each data set has for training and for testing."""


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """A data set for classification: images (n, c, h, w) with labels (n,) from 0 to `classes` - 1.

    Images are bytes, 0 (black) to 255, channels red, green, blue, rows from the top; or, once `standardised`, float32.
    Training images are in the publisher's order. `notes` says in sentences what is not as published: images that are not
    there.
    """

    name: str
    train_images: UInt8[np.ndarray, "train c h w"] | Float32[np.ndarray, "train c h w"]
    train_labels: Int32[np.ndarray, " train"]
    test_images: UInt8[np.ndarray, "test c h w"] | Float32[np.ndarray, "test c h w"]
    test_labels: Int32[np.ndarray, " test"]
    classes: int = CLASSES
    notes: tuple[str, ...] = ()

    def limited(self, train: int | None = None, test: int | None = None) -> "Images":
        """The first `train` images for training and the first `test` for testing; None keeps all.

        Asking for more than there are raises a [`DataError`][lagrax.datasets.DataError]: a result on 10,000 images should
        not pass for one on 50,000.
        """
        for wanted, labels, kind in ((train, self.train_labels, "training"), (test, self.test_labels, "test")):
            if wanted is not None and not 1 <= wanted <= len(labels):
                raise DataError(
                    f"{wanted} {kind} images of {self.name} are asked for, expected 1 to {len(labels)}, which there are: "
                    "ask for as many, or for None to have all"
                )
        return dataclasses.replace(
            self,
            train_images=self.train_images[:train],
            train_labels=self.train_labels[:train],
            test_images=self.test_images[:test],
            test_labels=self.test_labels[:test],
        )

    def held_out(self, count: int) -> "Images":
        """The last `count` training images in the place of the test images, which are not looked at; 0 changes nothing."""
        if not count:
            return self
        kept = len(self.train_labels) - count
        if kept < 1:
            raise DataError(
                f"validation = {count}, expected less than the {len(self.train_labels)} training images there are"
            )
        return dataclasses.replace(
            self,
            train_images=self.train_images[:kept],
            train_labels=self.train_labels[:kept],
            test_images=self.train_images[kept:],
            test_labels=self.train_labels[kept:],
            notes=(*self.notes, f"{self.name}: tested on the last {count} training images, not on test images"),
        )

    def smaller(self, size: float) -> "Images":
        """Square images, of bytes, averaged down to `size` pixels a side; up to 1 it is a fraction of those they have."""
        sides = self.train_images.shape[-1]
        wanted = _pixels(size, sides)
        if wanted == sides:
            return self
        if not 1 <= wanted < sides:
            raise DataError(
                f"size = {size:g}, expected 1 to {sides} for the images of {self.name}, or a fraction such as 0.5: images "
                "are averaged down and never blown up"
            )
        average = _shares(sides, wanted)
        apply = lambda x: np.rint(np.einsum("ah,nchw,bw->ncab", average, x, average, optimize=True)).astype(np.uint8)
        return dataclasses.replace(self, train_images=apply(self.train_images), test_images=apply(self.test_images))

    def standardised(self) -> "Images":
        """The same in float32 with mean 0 and standard deviation 1 in each channel of the training images.

        Test images are shifted and scaled by the same numbers. A channel that is constant becomes 0.
        """
        shift, scale = (number.astype(np.float32) for number in self.shift_and_scale())

        def apply(images: np.ndarray) -> np.ndarray:
            scaled = images.astype(np.float32)
            scaled -= shift
            scaled /= scale
            return scaled

        return dataclasses.replace(self, train_images=apply(self.train_images), test_images=apply(self.test_images))

    def shift_and_scale(self) -> tuple[Float64[np.ndarray, "c 1 1"], Float64[np.ndarray, "c 1 1"]]:
        """Mean and standard deviation of the training images in each channel, 1 in the place of a deviation of 0."""
        x = self.train_images
        count = x.size // x.shape[1]
        # In float64 and without a float64 copy of the images, which for CIFAR-10 would take 1.2 GB.
        mean = np.einsum("nchw->c", x, dtype=np.float64) / count
        square = np.einsum("nchw,nchw->c", x, x, dtype=np.float64) / count
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        return mean.reshape(-1, 1, 1), np.where(deviation > 0, deviation, 1).reshape(-1, 1, 1)


def _pixels(size: float, sides: int) -> int:
    """Of a side: a number up to 1 is a fraction of `sides`, which has to be whole."""
    wanted = size * sides if size <= 1 else size
    return round(wanted) if wanted == round(wanted) else 0


def _shares(sides: int, wanted: int) -> np.ndarray:
    """(wanted, sides), in float32: how much of each new pixel every old one makes up, by the length that they share."""
    old, new = np.arange(sides + 1) / sides, np.arange(wanted + 1) / wanted
    overlap = np.minimum(new[1:, None], old[1:]) - np.maximum(new[:-1, None], old[:-1])
    return (wanted * np.maximum(overlap, 0)).astype(np.float32)


def load(name: str, data_dir: str | os.PathLike | None = None, *, download: bool = True, progress: bool = True) -> Images:
    """Reads a data set: "digits", "mnist", "cifar10" or "svhn".

    Its files are looked for in the folder `data_dir`, else in the one that the environment variable `LAGRAX_DATA` names,
    else in the user's cache; directly there, or in a folder inside named after the data set. With `download`, what is not
    found is downloaded from its publisher into the cache, once, and has to have the published file's SHA-256 sum. With
    `progress`, downloads and `notes` are printed to stderr.

    Raises [`DataError`][lagrax.datasets.DataError], a `ValueError`, if the data cannot be had or a file is not intact.
    """
    if name not in _PUBLISHED:
        close = difflib.get_close_matches(name.lower(), _PUBLISHED, 1)
        hint = f"did you mean {close[0]!r}?" if close else "choose one of them"
        raise DataError(f"there is no data set {name!r}, expected {', '.join(_PUBLISHED)}: {hint}")
    if name == "digits":
        return Images(name, *_digits())
    folder = files.find(name, data_dir, download, progress)
    read = {"mnist": _mnist, "cifar10": _cifar10, "svhn": _svhn}[name]
    arrays = read(folder)
    notes = tuple(
        f"{name}: {len(labels)} of the published {published} {kind} images are in {folder}"
        for labels, published, kind in zip(arrays[1::2], _PUBLISHED[name], ("training", "test"), strict=True)
        if len(labels) != published
    )
    if progress:
        for note in notes:
            print(note, file=sys.stderr)
    return Images(name, *arrays, notes=notes)


# --- one reader each --------------------------------------------------------------------------------------------------


def _mnist(folder: Path) -> Arrays:
    source = files.SOURCES["mnist"]

    def part(kind: str, most: int) -> Labelled:
        images = source.required(folder, f"{kind}-images-idx3-ubyte.gz")
        labels = source.required(folder, f"{kind}-labels-idx1-ubyte.gz")
        return labelled(read_idx(images, (28, 28), most)[:, None], read_idx(labels, (), most), labels)

    train, test = _PUBLISHED["mnist"]
    return *part("train", train), *part("t10k", test)


def _cifar10(folder: Path) -> Arrays:
    """From the archive if it is there, else from those of the five training batches that are."""
    source = files.SOURCES["cifar10"]
    archive = source.required(folder, files.ARCHIVE)
    if archive.name == files.ARCHIVE:
        batches = read_archived_batches(archive, files.BATCHES)
    else:
        batches = {name: read_batch(folder / name) for name in files.BATCHES if os.path.isfile(folder / name)}
    *training, test = files.BATCHES
    present = [batches[name] for name in training if name in batches]
    for name, there in ((training[0], present), (test, test in batches)):
        if not there:
            raise source.missing(folder, name, files.ARCHIVE)
    images, labels = (np.concatenate(part) for part in zip(*present, strict=True))
    return images, labels, *batches[test]


def _svhn(folder: Path) -> Arrays:
    paths = [files.SOURCES["svhn"].required(folder, file) for file in ("train_32x32.mat", "test_32x32.mat")]
    train, test = (read_mat(path, most) for path, most in zip(paths, _PUBLISHED["svhn"], strict=True))
    return *train, *test


def _digits() -> Arrays:
    """The digits of scikit-learn in their order, the last 360 for testing.

    They come from thirteen writers and are not shuffled, so that the end shows hands that training has seen little of: a
    nearest neighbour errs on 4.4 % there, and on 0.8 to 1.4 % of 360 taken at random, next to digits of the same hand.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("digits needs scikit-learn, which is not installed: pip install 'lagrax[images]'") from None
    digits = load_digits()
    images, labels = labelled(np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None], digits.target, "scikit-learn")
    train = _PUBLISHED["digits"][0]
    return images[:train], labels[:train], images[train:], labels[train:]
