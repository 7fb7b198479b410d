"""Convolutions against XLA's own, and in pieces against all at once."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from lagrax.nn import _conv
from lagrax.nn._conv import Conv, conv1x1, conv3x3, in_pieces, native_conv3x3, winograd_conv3x3

SIZES = [(1, 1), (3, 4), (4, 3), (7, 8)]


def draw(shape, dtype=jnp.float64, seed=0):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def relative_error(a, b):
    return float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-10), (jnp.float32, 1e-4)])
def test_winograd_is_the_convolution(size, dtype, tolerance):
    x, kernel = draw((2, *size, 3), dtype), draw((3, 3, 3, 4), dtype, seed=1)
    cotangent = draw((2, *size, 4), dtype, seed=2)

    @jax.jit
    def run():
        results = [jax.vjp(conv, x, kernel) for conv in (winograd_conv3x3, native_conv3x3)]
        return [(y, pull(cotangent)) for y, pull in results]

    (y, gradients), (expected, expected_gradients) = run()
    assert y.dtype == dtype and y.shape == expected.shape
    assert relative_error(y, expected) < tolerance
    for given, wanted in zip(gradients, expected_gradients, strict=True):
        assert given.dtype == dtype and relative_error(given, wanted) < tolerance


def test_many_channels_in_single_precision():
    x, kernel = draw((1, 14, 14, 92), jnp.float32), draw((3, 3, 92, 92), jnp.float32, seed=1)
    exact = jax.jit(native_conv3x3)(x.astype(jnp.float64), kernel.astype(jnp.float64))
    assert relative_error(jax.jit(winograd_conv3x3)(x, kernel).astype(jnp.float64), exact) < 1e-5


def test_against_the_sum_itself():
    """One pixel written out, so that both are not wrong in the same way: correlation, not flipped; zeros outside."""
    x, kernel = draw((4, 5, 2)), draw((3, 3, 2, 3), seed=1)
    corner = sum(x[i, j] @ kernel[1 + i, 1 + j] for i in (0, 1) for j in (0, 1))
    inner = sum(x[2 + i, 2 + j] @ kernel[1 + i, 1 + j] for i in (-1, 0, 1) for j in (-1, 0, 1))
    for conv in (winograd_conv3x3, native_conv3x3):
        y = jax.jit(conv)(x, kernel)
        assert np.allclose(y[0, 0], corner, rtol=1e-12) and np.allclose(y[2, 2], inner, rtol=1e-12)


def test_leading_axes_and_transforms():
    x, kernel = draw((2, 3, 5, 4, 2)), draw((3, 3, 2, 3), seed=1)
    conv = jax.jit(winograd_conv3x3)
    y = conv(x, kernel)
    assert y.shape == (2, 3, 5, 4, 3)
    assert np.allclose(y[1, 2], conv(x[1, 2], kernel), rtol=1e-12)
    assert np.allclose(jax.jit(jax.vmap(winograd_conv3x3, (0, None)))(x, kernel), y, rtol=1e-12)
    kernels = jnp.stack([kernel, 2 * kernel])
    assert np.allclose(jax.jit(jax.vmap(winograd_conv3x3))(x, kernels)[1], 2 * y[1], rtol=1e-12)
    check_grads(jax.jit(winograd_conv3x3), (x[0, 0], kernel), order=1, modes=["fwd", "rev"])


def test_backend_decides(monkeypatch):
    x, kernel = draw((4, 4, 2)), draw((3, 3, 2, 2), seed=1)
    assert "conv_general_dilated" not in str(jax.make_jaxpr(lambda *a: conv3x3(*a))(x, kernel))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "conv_general_dilated" in str(jax.make_jaxpr(lambda *a: conv3x3(*a))(x, kernel))


def test_initialisation():
    layer = Conv((3, 3, 20, 30), conv3x3, key=jax.random.key(0))
    bound = 1 / np.sqrt(180)
    for values in (layer.weight, layer.bias):
        assert 0.9 * bound < float(jnp.max(jnp.abs(values))) <= bound
    assert abs(float(jnp.std(layer.weight)) / (bound / np.sqrt(3)) - 1) < 0.05
    he = Conv((3, 3, 20, 30), conv3x3, init=jax.nn.initializers.he_normal(), key=jax.random.key(0))
    assert not he.bias.any() and abs(float(jnp.std(he.weight)) / np.sqrt(2 / 180) - 1) < 0.05
    assert Conv((2, 3), conv1x1, dtype=jnp.float32, key=jax.random.key(0)).weight.dtype == jnp.float32


@pytest.mark.parametrize("batch", [(6,), (2, 5), (7,), ()], ids=str)
def test_pieces(batch, monkeypatch):
    """Images in pieces of at most three give what all give at once, forward, backward and under vmap."""
    layers = Conv((3, 3, 2, 3), conv3x3, key=jax.random.key(0))
    x = draw((*batch, 4, 5, 2))
    square = lambda layers, x: jnp.sum(jnp.sin(layers(x)))
    expected = eqx.filter_jit(eqx.filter_value_and_grad(square))(layers, x)
    monkeypatch.setattr(_conv, "_PIECE", 3 * 4 * 5 * 3)
    pieced = lambda layers, x: square(lambda x: in_pieces(layers, x, 3), x)
    assert ("scan" in str(jax.make_jaxpr(lambda x: pieced(layers, x))(x))) == (math.prod(batch) > 3)
    given = eqx.filter_jit(eqx.filter_value_and_grad(pieced))(layers, x)
    for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    stacked = jax.jit(jax.vmap(lambda x: in_pieces(layers, x, 3)))(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(stacked[1], eqx.filter_jit(layers)(2 * x), rtol=1e-10)
