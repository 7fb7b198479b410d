"""The paper's models of images.

Images are channel-first to the outside, `(..., channels, height, width)`, as in the paper, PyTorch and Equinox.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._adjoint import AbstractAdjoint, DiscreteAdjoint
from ._conv import Conv, conv1x1, conv3x3, in_pieces
from ._fields import Form, torch_uniform
from ._models import AbstractModel, NeuralDDE, NeuralODE, NeuralODEDDE

KINDS = ("NODE", "NDDE", "NODE+NDDE")


class ImageField(eqx.Module):
    """The paper's vector field for images: 1×1 convolution to k filters, ReLU, 3×3 to k, ReLU, 1×1 back to the channels.

    It is called as `field(t, y, delayed, args)`, with `y` of shape `(..., channels, height, width)`, `delayed` one such
    state or a PyTree of them, and returns the shape of `y`; t and args do not enter. A batch is best given as one state,
    with its axes in front: under `vmap` the gradient takes half as long again. Differentiate it with
    `DiscreteAdjoint(keep_stages=True)`, as [`lagrax.nn.ImageClassifier`][] does unless told otherwise.

    **Arguments:**

    - `channels`: those of the state, augmentation included.
    - `filters`: k.
    - `form`: a [`lagrax.nn.Form`][], what the first convolution reads; states are concatenated as channels. The paper's
      NODE has `Form.CURRENT`, its NDDE `Form.CONCAT`.
    - `num_delays`: how many delays the equation has.
    - `conv`: the 3×3 convolution: `conv3x3` chooses by backend; or `winograd_conv3x3`, `native_conv3x3`, or your own.
    - `init`: `torch_uniform` draws weights and biases as PyTorch does, and the paper's code did. Any other initialiser
      `(key, (fan_in, fan_out), dtype)`, such as `jax.nn.initializers.he_normal()`, draws the weights, and biases are zero.
    - `dtype`: of the parameters; JAX's default precision if not given.
    - `key`: for the initial weights.
    """

    expand: Conv
    mix: Conv
    reduce: Conv
    form: Form = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        filters: int,
        *,
        form: Form = Form.CONCAT,
        num_delays: int = 1,
        conv: Callable = conv3x3,
        init: Callable = torch_uniform,
        dtype: Any = float,
        key: PRNGKeyArray,
    ):
        if min(channels, filters) < 1:
            raise ValueError(f"got {channels} channels and {filters} filters, expected at least one of each")
        keys = jax.random.split(key, 3)
        layer = lambda shape, product, key: Conv(shape, product, init=init, dtype=dtype, key=key)
        self.expand = layer((channels * form.blocks(num_delays), filters), conv1x1, keys[0])
        self.mix = layer((3, 3, filters, filters), conv, keys[1])
        self.reduce = layer((filters, channels), conv1x1, keys[2])
        self.form = form

    def __call__(self, t: Any, y: Float[Array, "*batch c h w"], delayed: Any, args: Any) -> Float[Array, "*batch c h w"]:
        x = jnp.moveaxis(self.form.combine(y, delayed, axis=-3), -3, -1)
        inputs = self.expand.weight.shape[0]
        if x.shape[-1] != inputs:
            raise ValueError(
                f"Form.{self.form.name} made an input of {x.shape[-1]} channels, expected {inputs}: give the ImageField the "
                "channels of the (augmented) state, which stand before height and width, and the number of delays"
            )
        return jnp.moveaxis(in_pieces(self.layers, x, self.expand.weight.shape[1]), -1, -3)

    def layers(self, x: Float[Array, "*batch h w c"]) -> Float[Array, "*batch h w d"]:
        """Of channel-last images, where `c` are the channels of what the form has combined."""
        x = jax.nn.relu(self.expand(x))
        x = jax.nn.relu(self.mix(x))
        return self.reduce(x)


def image_fields(
    kind: str, channels: int, filters: int, *, augment: int = 0, init: Callable = torch_uniform, key: PRNGKeyArray
) -> tuple[ImageField, ...]:
    """The fields of one of the paper's image models, for images with `channels` and `augment` channels of zeros behind them.

    `(ode,)` for a NODE, `(dde,)` for an NDDE, and `(ode, dde)` for NODE+NDDE, whose two fields have parameters of their own,
    with as many filters each.
    """
    if kind not in KINDS:
        raise ValueError(f"got the kind {kind!r}, expected one of {', '.join(KINDS)}: augment is an argument of its own")
    first, second = jax.random.split(key)
    ode = lambda: ImageField(channels + augment, filters, form=Form.CURRENT, init=init, key=first)
    dde = lambda: ImageField(channels + augment, filters, form=Form.CONCAT, init=init, key=second)
    if kind == "NODE+NDDE":
        return ode(), dde()
    return (ode(),) if kind == "NODE" else (dde(),)


class ImageClassifier(eqx.Module):
    """One of the paper's image models: a flow of images, and a linear layer that reads where it ends.

    `model(images)` are the logits, (..., classes), of images (..., channels, height, width); `model.classify(images)` hands
    back the `stats` of the solve besides. Augmented channels are zeros behind those of the image, and read by the linear
    layer as well.

    **Arguments:**

    - `kind`: "NODE", "NDDE" or "NODE+NDDE".
    - `shape`: channels, height and width of an image.
    - `filters`: k, see [`lagrax.nn.ImageField`][]; `lagrax.nn.PAPER_FILTERS` has the paper's.
    - `augment`: channels of zeros.
    - `classes`: how many.
    - `delay`: τ, 1 as in the paper. T is 1 too, unless the settings have another `t1`.
    - `compute`: the precision in which the field is computed, such as `jax.numpy.bfloat16`; parameters, states and the
      linear layer keep theirs. See [`lagrax.nn.LowPrecision`][].
    - `key`: for the initial weights, PyTorch's uniform ones.
    - `settings`: those of the model, `t1`, `solver`, `stepsize_controller` and so on, see [`lagrax.nn.AbstractModel`][].
    """

    flow: AbstractModel
    head: eqx.nn.Linear

    def __init__(
        self,
        kind: str,
        shape: tuple[int, int, int],
        filters: int,
        *,
        augment: int = 0,
        classes: int = 10,
        delay: float = 1.0,
        compute: Any = None,
        key: PRNGKeyArray,
        **settings: Any,
    ):
        channels, height, width = shape
        field_key, head_key = jax.random.split(key)
        fields: Any = image_fields(kind, channels, filters, augment=augment, key=field_key)
        if compute is not None:
            fields = tuple(LowPrecision(field, compute) for field in fields)
        settings = {"axis": -3, "augment": augment, "adjoint": DiscreteAdjoint(keep_stages=True), **settings}
        if kind == "NODE":
            self.flow = NeuralODE(*fields, **settings)
        else:
            self.flow = (NeuralDDE if kind == "NDDE" else NeuralODEDDE)(*fields, delay, **settings)
        self.head = eqx.nn.Linear((channels + augment) * height * width, classes, key=head_key)

    def __call__(self, images: Float[Array, "*batch c h w"]) -> Float[Array, "*batch classes"]:
        return self.classify(images)[0]

    def classify(
        self, images: Float[Array, "*batch c h w"], *, adjoint: AbstractAdjoint | None = None, throw: bool = True
    ) -> tuple[Float[Array, "*batch classes"], dict[str, Any]]:
        """(The logits, the `stats` of the solve). Without `throw`, logits of a failed solve are infinite."""
        solution = self.flow.solve(images, adjoint=adjoint, throw=throw)
        ys: Any = solution.ys
        features = ys[0].reshape(*images.shape[:-3], -1)
        bias: Any = self.head.bias
        return features @ self.head.weight.T + bias, solution.stats


class LowPrecision(eqx.Module):
    """A vector field computed in another precision, such as `jax.numpy.bfloat16`; states and parameters keep theirs.

    It pays on hardware with units for it; on a CPU it does not. The error of a step is then no smaller than the precision:
    expect no benefit from tolerances below 1e-2 with bfloat16.
    """

    field: Callable
    dtype: Any = eqx.field(static=True)

    def __call__(self, t: Any, y: PyTree, delayed: PyTree, args: PyTree) -> PyTree:
        low = lambda tree: jax.tree.map(lambda x: x.astype(self.dtype) if eqx.is_inexact_array(x) else x, tree)
        slope = low(self.field)(t, low(y), low(delayed), low(args))
        return jax.tree.map(lambda new, old: new.astype(old.dtype), slope, y)


IMAGE_SHAPES = {"CIFAR10": (3, 32, 32), "MNIST": (1, 28, 28), "SVHN": (3, 32, 32)}
"""Channels, height and width of the paper's data."""

PAPER_FILTERS: dict[tuple[str, int], dict[str, int]] = {
    (kind, augment): {"CIFAR10": color, "MNIST": gray, "SVHN": color}
    for augment, kind, color, gray in (
        (0, "NODE", 92, 92), (0, "NDDE", 92, 92), (0, "NODE+NDDE", 64, 64),
        (1, "NODE", 86, 87), (1, "NDDE", 85, 86), (1, "NODE+NDDE", 60, 61),
        (2, "NODE", 79, 81), (2, "NDDE", 78, 81), (2, "NODE+NDDE", 55, 57),
        (4, "NODE", 63, 70), (4, "NDDE", 62, 69), (4, "NODE+NDDE", 43, 49),
    )
}  # fmt: skip
"""Filters of the paper's image models: by kind and number of channels of zeros, then by data.

Every convolution has a bias, none sees the time, and one linear layer with bias reads all (channels + augment) · height ·
width values of the final state into 10 classes: this gives the paper's 36 numbers of parameters.
"""
