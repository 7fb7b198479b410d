"""Training a classifier of images: what is on the devices, the loss, and the test after every epoch.

A data set is small beside the memory of a device: it is there as a whole, as bytes, and batches are cut out of it by the
compiled loop, so that no device ever waits for input. With several devices each has all the images and computes its share
of every batch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, UInt8

from ..._adjoint import DiscreteAdjoint
from ...datasets.images import Images
from ...nn import ImageClassifier
from ...runner import Settings, UserError
from ...train import Fit
from ...train._seeds import over_seeds
from .._training import evaluations, train_seeds

AUGMENTATIONS = ("none", "shift", "shift+flip")
_SHIFT = 2  # pixels


@dataclasses.dataclass(frozen=True)
class PlacedImages:
    """Images and labels to train and test with, on all devices, and how bytes become numbers."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]
    shift: np.ndarray  # (c, 1, 1): mean of the training images, as bytes
    scale: np.ndarray  # their standard deviation
    mesh: Mesh | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        _, channels, height, width = self.train[0].shape
        return channels, height, width

    def standardised(self, images: UInt8[Array, "*batch c h w"]) -> Float[Array, "*batch c h w"]:
        """Mean 0 and deviation 1 over the training images, in each channel."""
        x = images.astype(float)
        return (x - self.shift.astype(x.dtype)) / self.scale.astype(x.dtype)

    def shared_out(self, batch: Any) -> Any:
        """A batch in the compiled loop, a share on each device."""
        return self._constrained(batch, PartitionSpec("batch"))

    def everywhere(self, results: Any) -> Any:
        """Results in the compiled loop, as a whole on each device."""
        return self._constrained(results, PartitionSpec())

    def _constrained(self, tree: Any, spec: PartitionSpec) -> Any:
        return tree if self.mesh is None else lax.with_sharding_constraint(tree, NamedSharding(self.mesh, spec))


def place(images: Images, batch: int) -> PlacedImages:
    """Brings the data to all devices, of this process and the others."""
    devices = jax.devices()
    if batch % len(devices):
        fitting = -(-batch // len(devices)) * len(devices)
        raise UserError(f"batch = {batch}, expected a multiple of the {len(devices)} devices: --set batch={fitting}")
    mesh = Mesh(np.array(devices), ("batch",)) if len(devices) > 1 else None
    put = lambda x: jnp.asarray(x) if mesh is None else jax.device_put(x, NamedSharding(mesh, PartitionSpec()))
    return PlacedImages(
        (put(images.train_images), put(images.train_labels)),
        (put(images.test_images), put(images.test_labels)),
        *images.shift_and_scale(),
        mesh,
    )


def train(
    settings: Settings, name: str, make: Callable, placed: PlacedImages, seconds: float | None
) -> tuple[Fit, dict[str, np.ndarray], int]:
    """Trains all seeds of one model, and tests them after every epoch. Returns the last test, image by image, and the
    iterations per epoch as well.

    Every model gets the same key: seed i sees the same batches in all of them, so that models can be compared seed by seed.
    """
    numbers = settings.numbers
    epoch = -(-len(placed.train[1]) // numbers.batch)
    each = tester(placed, numbers.batch)
    fitted = train_seeds(
        settings, name, make, cross_entropy(settings, placed), placed.train, numbers.epochs * epoch,
        jr.fold_in(jr.key(4), 0), batch_size=numbers.batch, data_stacked=False, in_turn=_in_turn(), until=seconds,
        evaluate=lambda models: averages(each(models)), evaluate_every=epoch,
    )  # fmt: skip
    return fitted, {name: np.asarray(values) for name, values in each(fitted.model).items()}, epoch


def _in_turn() -> bool:
    """Whether seeds are computed one after the other: on a CPU, which a batch of one seed keeps busy. Five seeds of the
    digits took 1.5 (NODE) and 1.8 (NODE+NDDE) times as long in one batch. Elsewhere nothing was measured."""
    return jax.default_backend() == "cpu"


def cross_entropy(settings: Settings, placed: PlacedImages) -> Callable:
    """The loss that `lagrax.train.fit` takes: cross-entropy of the logits, on a batch of bytes."""
    adjoint: Any = settings.adjoint
    if isinstance(adjoint, DiscreteAdjoint):
        adjoint = dataclasses.replace(adjoint, keep_stages=True)

    def loss(model: ImageClassifier, batch: Any, key: Array):
        images, labels = batch
        x = augmented(settings.numbers.augmentation, key, placed.standardised(images))
        logits, stats = model.classify(x, adjoint=adjoint, throw=False)
        return jnp.mean(_losses(logits, labels)), evaluations(settings, stats)

    return loss


def augmented(how: str, key: Array, images: Float[Array, "batch c h w"]) -> Float[Array, "batch c h w"]:
    """Each image moved by up to two pixels either way, the border repeated, and perhaps mirrored. All from the key."""
    if how == "none":
        return images
    shift_key, flip_key = jr.split(key)
    count, _, height, width = images.shape
    padded = jnp.pad(images, [(0, 0), (0, 0), (_SHIFT, _SHIFT), (_SHIFT, _SHIFT)], mode="edge")
    corner = jr.randint(shift_key, (count, 2), 0, 2 * _SHIFT + 1)
    cut = lambda image, at: lax.dynamic_slice(image, (0, at[0], at[1]), (image.shape[0], height, width))
    moved = jax.vmap(cut)(padded, corner)
    if how == "shift":
        return moved
    return jnp.where(jr.bernoulli(flip_key, shape=(count, 1, 1, 1)), moved[..., ::-1], moved)


def tester(placed: PlacedImages, batch: int) -> Callable:
    """`test(models)`: loss of each test image and whether the class is right, (seeds, images), in batches of which the last
    is filled up."""
    images, labels = placed.test
    count = len(labels)
    batches = -(-count // batch)
    order = np.arange(batches * batch).reshape(batches, batch) % count

    @eqx.filter_jit
    def test(models: ImageClassifier, images: Array, labels: Array) -> dict[str, Array]:
        arrays, rest = eqx.partition(models, eqx.is_array)

        def one(arrays):
            model = eqx.combine(arrays, rest)

            def part(index):
                x, label = placed.shared_out((images[index], labels[index]))
                logits, _ = model.classify(placed.standardised(x), throw=False)
                return {"loss": _losses(logits, label), "right": jnp.argmax(logits, axis=-1).astype(label.dtype) == label}

            return {key: x.reshape(-1)[:count] for key, x in lax.map(part, jnp.asarray(order, jnp.int32)).items()}

        return placed.everywhere(over_seeds(one, True, in_turn=_in_turn())(arrays))

    return lambda models: test(models, images, labels)


def averages(each: dict[str, Array]) -> dict[str, Array]:
    """Loss and accuracy of each seed."""
    right = each["right"].astype(each["loss"].dtype)
    return {"test loss": jnp.mean(each["loss"], axis=-1), "accuracy": jnp.mean(right, axis=-1)}


def _losses(logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]) -> Float[Array, " batch"]:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
