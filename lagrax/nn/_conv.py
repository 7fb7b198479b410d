"""Convolutions that are fast inside a solver's loop.

Images are channel-last here, `(..., height, width, channels)`, which makes every convolution a sum of products of large
matrices with small ones.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ._fields import torch_uniform

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


# Numbers in one layer of a piece, at most 4 MB of them in single precision. Half as many are slower (a gradient as below
# takes 3.4 instead of 2.9 s), twice as many no faster.
_PIECE = 2**20


def in_pieces(layers: Callable, x: Float[Array, "*batch h w c"], filters: int) -> Float[Array, "*batch h w d"]:
    """`layers(x)`, on the CPU computed for a few images at a time, and again when the gradient needs it.

    What lies between input and output, `filters` channels wide, is then small enough for the cache, and never stored for the
    whole batch: two steps of Tsit5 at 64×32×32×92 take 0.52 instead of 0.73 s, their gradient 2.9 instead of 3.2 s and 57 MB
    instead of 1.1 GB. A piece has images from all over the batch rather than neighbours, so that a batch spread over devices
    is in every piece on all of them.
    """
    if jax.default_backend() != "cpu":
        return layers(x)
    *batch, h, w, c = x.shape
    count = math.prod(batch)
    most = max(1, _PIECE // (h * w * filters))
    layers = eqx.filter_checkpoint(layers, prevent_cse=False)
    if count <= most:
        return layers(x)
    size = max(n for n in range(1, most + 1) if count % n == 0)
    pieces = jnp.moveaxis(x.reshape(size, -1, h, w, c), 1, 0)
    y = lax.map(layers, pieces)
    return jnp.moveaxis(y, 0, 1).reshape(*batch, h, w, -1)


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
