"""Convolutions that are fast inside a solver's loop, and the paper's vector field for images.

Images are channel-first to the outside, `(..., channels, height, width)`, as in the paper, PyTorch and Equinox. Inside the
field they are channel-last, which makes every convolution a sum of products of large matrices with small ones.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ._form import Form
from ._mlp import torch_uniform

# Winograd's F(2×2, 3×3): 16 products per tile of 2×2 outputs, where the direct sum takes 36. Rows of the transforms of a
# tile of the input (4 → 4), of the kernel (3 → 4) and of the products (4 → 2), along one axis.
_INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_KERNEL = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
_OUTPUT = ((1, 1, 1, 0), (0, 1, -1, -1))


def conv3x3(x: Float[Array, "*batch h w c"], kernel: Float[Array, "3 3 c k"]) -> Float[Array, "*batch h w k"]:
    """3×3 convolution (cross-correlation, as everywhere in deep learning) with one pixel of zeros around the image.

    Winograd's algorithm if JAX's default backend is the CPU, XLA's convolution elsewhere. On the CPU the gradient of
    that, in a loop, took 255 s where nine shifted matrix products took 6 s; `python -m benchmarks.convolutions` compares the
    ways to do it. Differentiable in both arguments, in forward and reverse mode.
    """
    return winograd_conv3x3(x, kernel) if jax.default_backend() == "cpu" else native_conv3x3(x, kernel)


def conv1x1(x: Float[Array, "*batch c"], kernel: Float[Array, "c k"]) -> Float[Array, "*batch k"]:
    """1×1 convolution: one matrix product.

    Of matrices: with more axes, the weight's gradient sums over several, which takes XLA five times as long.
    """
    return (x.reshape(-1, x.shape[-1]) @ kernel).reshape(*x.shape[:-1], -1)


def native_conv3x3(x: Float[Array, "*batch h w c"], kernel: Float[Array, "3 3 c k"]) -> Float[Array, "*batch h w k"]:
    """`conv3x3` by XLA."""
    images = x.reshape(-1, *x.shape[-3:])
    y = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y.reshape(*x.shape[:-1], kernel.shape[-1])


def winograd_conv3x3(x: Float[Array, "*batch h w c"], kernel: Float[Array, "3 3 c k"]) -> Float[Array, "*batch h w k"]:
    """`conv3x3` by sixteen matrix products, of the tiles' transforms with the kernel's.

    As sixteen products and not as a batch of them: stacking the transforms costs as much as multiplying them (149 instead of
    68 ms forward at 64×32×32×92); nor larger tiles, F(4×4, 3×3), whose 36 transforms cost more than they save (79 ms forward
    and 229 ms gradient instead of 149, with an error of 7e-6 instead of 8e-7). Tiles are cut out by reshaping rather than by
    strides, so that the transpose pads whole slices and spreads nothing out.
    """
    *batch, h, w, _ = x.shape
    rows, columns = -(-h // 2), -(-w // 2)
    around = [(0, 0)] * len(batch) + [(1, 2 * rows + 1 - h), (1, 2 * columns + 1 - w), (0, 0)]
    padded = jnp.pad(x, around)
    tiles = [_combine(_INPUT, _tiles(strip, -2)) for strip in _combine(_INPUT, _tiles(padded, -3))]
    transform = jnp.asarray(_KERNEL, kernel.dtype)
    kernels = jnp.einsum("ai,bj,ijck->abck", transform, transform, kernel)
    products = [[conv1x1(tiles[a][b], kernels[a, b]) for b in range(4)] for a in range(4)]
    halves = _combine(_OUTPUT, [jnp.stack(_combine(_OUTPUT, row), axis=-2) for row in products])
    y = jnp.stack(halves, axis=-4)
    return y.reshape(*batch, 2 * rows, 2 * columns, -1)[..., :h, :w, :]


def _tiles(x: Array, axis: int) -> list[Array]:
    """The i-th elements, i = 0, …, 3, of overlapping tiles (0…3, 2…5, 4…7, …) along an axis."""
    axis += x.ndim
    pairs = x.reshape(*x.shape[:axis], -1, 2, *x.shape[axis + 1 :])
    count = pairs.shape[axis] - 1
    pick = lambda first, i: lax.index_in_dim(lax.slice_in_dim(pairs, first, first + count, axis=axis), i, axis + 1, False)
    return [pick(0, 0), pick(0, 1), pick(1, 0), pick(1, 1)]


def _combine(rows: tuple[tuple[int, ...], ...], parts: list[Array]) -> list[Array]:
    """A matrix of 0, 1 and −1 times a list of arrays."""

    def total(row):
        positive = [part for sign, part in zip(row, parts, strict=True) if sign > 0]
        negative = [part for sign, part in zip(row, parts, strict=True) if sign < 0]
        return (
            sum(positive[1:], positive[0]) - sum(negative[1:], negative[0]) if negative else sum(positive[1:], positive[0])
        )

    return [total(row) for row in rows]


class Conv(eqx.Module):
    """A convolution with bias of channel-last images, `(..., height, width, channels)`.

    `product(x, weight)` is `conv1x1` with a weight of shape `(c, k)`, or `conv3x3` with one of `(3, 3, c, k)`.
    Differentiable in the weight, the bias and the image.
    """

    weight: Float[Array, "*size c k"]
    bias: Float[Array, " k"]
    product: Callable = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        product: Callable,
        *,
        init: Callable = torch_uniform,
        dtype: Any = float,
        key: PRNGKeyArray,
    ):
        weight_key, bias_key = jax.random.split(key)
        matrix = (math.prod(shape[:-1]), shape[-1])
        self.weight = init(weight_key, matrix, dtype).reshape(shape)
        torch = init is torch_uniform
        self.bias = torch_uniform(bias_key, matrix, dtype)[0] if torch else jnp.zeros(shape[-1], dtype)
        self.product = product

    def __call__(self, x: Float[Array, "*batch h w c"]) -> Float[Array, "*batch h w k"]:
        return self.product(x, self.weight) + self.bias


class ImageField(eqx.Module):
    """The paper's vector field for images: 1×1 convolution to k filters, ReLU, 3×3 to k, ReLU, 1×1 back to the channels.

    It is called as `field(t, y, delayed, args)`, with `y` of shape `(..., channels, height, width)`, `delayed` one such
    state or a PyTree of them, and returns the shape of `y`; t and args do not enter. A batch is best given as one state,
    with its axes in front: under `vmap` the gradient takes half as long again.

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
        x = jax.nn.relu(self.expand(x))
        x = jax.nn.relu(self.mix(x))
        return jnp.moveaxis(self.reduce(x), -1, -3)


Kind = Literal["NODE", "NDDE", "NODE+NDDE"]


def image_fields(
    kind: Kind, channels: int, filters: int, *, augment: int = 0, init: Callable = torch_uniform, key: PRNGKeyArray
) -> tuple[ImageField, ...]:
    """The fields of one of the paper's image models, for images with `channels` and `augment` channels of zeros behind them.

    `(ode,)` for a NODE, `(dde,)` for an NDDE, and `(ode, dde)` for NODE+NDDE, whose two fields have parameters of their own,
    with as many filters each.
    """
    first, second = jax.random.split(key)
    ode = lambda: ImageField(channels + augment, filters, form=Form.CURRENT, init=init, key=first)
    dde = lambda: ImageField(channels + augment, filters, form=Form.CONCAT, init=init, key=second)
    if kind == "NODE+NDDE":
        return ode(), dde()
    return (ode(),) if kind == "NODE" else (dde(),)


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
