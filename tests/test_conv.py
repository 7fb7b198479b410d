"""Convolutions against XLA's own; the paper's image field, its 36 numbers of parameters, its gradient through a solve."""

import math

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import lagrax as lx
from lagrax.nn import Form
from lagrax.nn._conv import (
    IMAGE_SHAPES,
    PAPER_FILTERS,
    Conv,
    ImageField,
    conv1x1,
    conv3x3,
    image_fields,
    native_conv3x3,
    winograd_conv3x3,
)

# Table of the paper's appendix: kind, augmented channels, parameters on CIFAR10, MNIST, SVHN.
PARAMETERS = [
    ("NODE", 0, 107645, 84395, 107645),
    ("NDDE", 0, 107921, 84487, 107921),
    ("NODE+NDDE", 0, 105680, 82156, 105680),
    ("NODE", 1, 108398, 84335, 108398),
    ("NDDE", 1, 107189, 82944, 107189),
    ("NODE+NDDE", 1, 107218, 83526, 107218),
    ("NODE", 2, 108332, 83230, 108332),
    ("NDDE", 2, 107297, 83473, 107297),
    ("NODE+NDDE", 2, 107265, 83101, 107265),
    ("NODE", 4, 108426, 84155, 108426),
    ("NDDE", 4, 107719, 83237, 107719),
    ("NODE+NDDE", 4, 106663, 83859, 106663),
]
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


@pytest.mark.parametrize(("kind", "augment", "cifar10", "mnist", "svhn"), PARAMETERS, ids=lambda x: str(x))
def test_the_papers_parameters(kind, augment, cifar10, mnist, svhn):
    def build(channels, height, width, filters):
        key = jax.random.key(0)
        head = eqx.nn.Linear((channels + augment) * height * width, 10, key=key)
        return image_fields(kind, channels, filters, augment=augment, key=key), head

    for data, expected in {"CIFAR10": cifar10, "MNIST": mnist, "SVHN": svhn}.items():
        model = eqx.filter_eval_shape(build, *IMAGE_SHAPES[data], PAPER_FILTERS[kind, augment][data])
        assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(model)) == expected


def test_filters_of_the_examples_named_in_the_issue():
    assert PAPER_FILTERS["NODE", 0]["CIFAR10"] == 92 and PAPER_FILTERS["NODE+NDDE", 1]["MNIST"] == 61
    assert len(PAPER_FILTERS) == len(PARAMETERS) == 12


def test_both_fields_of_node_ndde_are_their_own():
    ode, dde = image_fields("NODE+NDDE", 1, 4, key=jax.random.key(0))
    assert (ode.form, dde.form) == (Form.CURRENT, Form.CONCAT) and dde.expand.weight.shape == (2, 4)
    assert not jnp.array_equal(ode.mix.weight, dde.mix.weight)


def reference(field, x):
    """The block by XLA's convolutions in PyTorch's layout."""
    for i, (layer, size) in enumerate([(field.expand, 1), (field.mix, 3), (field.reduce, 1)]):
        weight = layer.weight.reshape(size, size, *layer.weight.shape[-2:]).transpose(3, 2, 0, 1)
        x = jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME") + layer.bias[:, None, None]
        x = jax.nn.relu(x) if i < 2 else x
    return x


@pytest.mark.parametrize("form", Form)
def test_forms(form):
    y, past = draw((2, 3, 5, 6)), draw((2, 3, 5, 6), seed=1)
    field = ImageField(3, 7, form=form, key=jax.random.key(2))
    both = jnp.concatenate([y, past], axis=1)
    read = {Form.CURRENT: y, Form.DELAYED: past, Form.SUM: y + past, Form.CONCAT: both}[form]
    expected = eqx.filter_jit(reference)(field, read)
    assert np.allclose(eqx.filter_jit(field)(0.0, y, past, None), expected, rtol=1e-10)
    assert np.allclose(eqx.filter_jit(field)(0.0, y[0], past[0], None), expected[0], rtol=1e-10)


def test_two_delays():
    y, delayed = draw((1, 3, 4)), {"a": draw((1, 3, 4), seed=1), "b": draw((1, 3, 4), seed=2)}
    field = ImageField(1, 5, num_delays=2, key=jax.random.key(0))
    read = jnp.concatenate([y, delayed["a"], delayed["b"]])
    assert np.allclose(field(0.0, y, delayed, None), reference(field, read[None])[0], rtol=1e-10)


def test_initialisation():
    layer = Conv((3, 3, 20, 30), conv3x3, key=jax.random.key(0))
    bound = 1 / np.sqrt(180)
    for values in (layer.weight, layer.bias):
        assert 0.9 * bound < float(jnp.max(jnp.abs(values))) <= bound
    assert abs(float(jnp.std(layer.weight)) / (bound / np.sqrt(3)) - 1) < 0.05
    he = Conv((3, 3, 20, 30), conv3x3, init=jax.nn.initializers.he_normal(), key=jax.random.key(0))
    assert not he.bias.any() and abs(float(jnp.std(he.weight)) / np.sqrt(2 / 180) - 1) < 0.05
    assert Conv((2, 3), conv1x1, dtype=jnp.float32, key=jax.random.key(0)).weight.dtype == jnp.float32


def test_bad_arguments():
    with pytest.raises(ValueError, match="3 channels and 0 filters"):
        ImageField(3, 0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="made an input of 8 channels, expected 6"):
        ImageField(3, 4, key=jax.random.key(0))(0.0, jnp.ones((4, 5, 5)), jnp.ones((4, 5, 5)), None)


@pytest.mark.parametrize("adjoint", [lx.DiscreteAdjoint(), lx.ForwardMode()], ids=lambda a: type(a).__name__)
def test_gradient_through_a_solve(adjoint):
    """Along a random direction, against a central difference; away from kinks of ReLU, which an epsilon of 1e-6 avoids."""
    field = ImageField(1, 3, key=jax.random.key(0))
    image = draw((2, 1, 4, 3), seed=1)

    def loss(field, image):
        term, steps = lx.DelayTerm(field, 1.0), dfx.ConstantStepSize()
        solution = lx.ddesolve(
            term, dfx.Tsit5(), 0.0, 1.0, 0.5, image, stepsize_controller=steps, max_steps=4, adjoint=adjoint
        )
        return jnp.sum(jnp.sin(solution.ys))

    arrays, static = eqx.partition((field, image), eqx.is_inexact_array)
    total = jax.jit(lambda arrays: loss(*eqx.combine(arrays, static)))
    leaves, structure = jax.tree.flatten(arrays)
    direction = jax.tree.unflatten(structure, [draw(leaf.shape, seed=i) for i, leaf in enumerate(leaves, start=5)])
    moved = lambda epsilon: total(jax.tree.map(lambda a, d: a + epsilon * d, arrays, direction))
    slope = (moved(1e-6) - moved(-1e-6)) / 2e-6
    if isinstance(adjoint, lx.ForwardMode):
        derivative = jax.jvp(total, (arrays,), (direction,))[1]
    else:
        gradient = jax.grad(total)(arrays)
        derivative = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    assert abs(float(derivative / slope) - 1) < 1e-6
