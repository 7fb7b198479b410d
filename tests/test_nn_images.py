"""The paper's image models: the field, the 36 numbers of parameters, gradients through a solve."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx
from lagrax.nn import (
    IMAGE_SHAPES,
    PAPER_FILTERS,
    Form,
    ImageClassifier,
    ImageField,
    LowPrecision,
    count_parameters,
    image_fields,
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
KINDS = ("NODE", "NDDE", "NODE+NDDE")


def draw(shape, dtype=jnp.float64, seed=0):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


@pytest.mark.parametrize(("kind", "augment", "cifar10", "mnist", "svhn"), PARAMETERS, ids=lambda x: str(x))
def test_the_papers_parameters(kind, augment, cifar10, mnist, svhn):
    build = lambda data: ImageClassifier(
        kind, IMAGE_SHAPES[data], PAPER_FILTERS[kind, augment][data], augment=augment, key=jax.random.key(0)
    )
    for data, expected in {"CIFAR10": cifar10, "MNIST": mnist, "SVHN": svhn}.items():
        model = eqx.filter_eval_shape(build, data)
        assert count_parameters(model) == expected


def test_filters_of_some_models():
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
    expected = eqx.filter_jit(reference)(field, read[None])[0]
    assert np.allclose(eqx.filter_jit(field)(0.0, y, delayed, None), expected, rtol=1e-10)


def test_bad_arguments():
    with pytest.raises(ValueError, match="3 channels and 0 filters"):
        ImageField(3, 0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="made an input of 8 channels, expected 6"):
        ImageField(3, 4, key=jax.random.key(0))(0.0, jnp.ones((4, 5, 5)), jnp.ones((4, 5, 5)), None)


@pytest.mark.parametrize("adjoint", [lx.DiscreteAdjoint(), pytest.param(lx.ForwardMode(), marks=pytest.mark.slow)])
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
    total = lambda arrays: loss(*eqx.combine(arrays, static))
    leaves, structure = jax.tree.flatten(arrays)
    direction = jax.tree.unflatten(structure, [draw(leaf.shape, seed=i) for i, leaf in enumerate(leaves, start=5)])
    along = lambda gradient: sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, direction)))

    @jax.jit
    def value_and_derivative(arrays):
        if isinstance(adjoint, lx.ForwardMode):
            return jax.jvp(total, (arrays,), (direction,))
        value, gradient = jax.value_and_grad(total)(arrays)
        return value, along(gradient)

    moved = lambda epsilon: value_and_derivative(jax.tree.map(lambda a, d: np.asarray(a + epsilon * d), arrays, direction))
    _, derivative = moved(0.0)
    slope = (moved(1e-6)[0] - moved(-1e-6)[0]) / 2e-6
    assert abs(float(derivative / slope) - 1) < 1e-6


@pytest.mark.parametrize("kind", [k if k == "NODE+NDDE" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_classifier(kind):
    """Logits are the head of the flow's end, zeros included; a batch in fixed steps and vmap in its own ones agree."""
    make = lambda **options: ImageClassifier(kind, (2, 4, 3), 3, augment=1, classes=4, key=jax.random.key(0), **options)
    images = draw((3, 2, 4, 3), seed=1)
    # With fixed steps: near ReLU's kinks two programs that round differently take different steps otherwise.
    model = make(dt0=1 / 32, stepsize_controller=dfx.ConstantStepSize())
    logits, stats = eqx.filter_jit(model.classify)(images)
    features = jax.jit(lambda x: model.flow(x))(images).reshape(3, -1)
    assert logits.shape == (3, 4) and features.shape == (3, 36) and stats["num_evaluations"] > 6
    np.testing.assert_allclose(logits, jax.vmap(model.head)(features), rtol=1e-10)
    model = make(stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8))
    np.testing.assert_allclose(logits, jax.jit(jax.vmap(lambda x: model(x)))(images), rtol=1e-4, atol=1e-5)  # ReLU's kinks


def test_classifier_of_an_unknown_kind():
    with pytest.raises(ValueError, match="got the kind 'ANODE', expected one of NODE, NDDE"):
        ImageClassifier("ANODE", (1, 4, 4), 3, key=jax.random.key(0))


def test_low_precision():
    """Inside the field everything is bfloat16; states, parameters and their gradients are not; numbers differ a little."""
    y, past = draw((2, 1, 4, 4)), draw((2, 1, 4, 4), seed=1)
    field = ImageField(1, 5, key=jax.random.key(0))
    low = LowPrecision(field, jnp.bfloat16)
    text = str(jax.make_jaxpr(lambda y: low(0.0, y, past, None))(y))
    assert "bf16[2,4,4,5]" in text and "f64[2,4,4,5]" not in text
    exact, rough = eqx.filter_jit(field)(0.0, y, past, None), eqx.filter_jit(low)(0.0, y, past, None)
    assert rough.dtype == exact.dtype and 1e-6 < float(jnp.max(jnp.abs(rough - exact))) < 0.05
    gradient = eqx.filter_jit(eqx.filter_grad(lambda low: jnp.sum(low(0.0, y, past, None) ** 2)))(low)
    assert gradient.field.mix.weight.dtype == jnp.float64
    model = ImageClassifier("NDDE", (1, 4, 4), 5, compute=jnp.bfloat16, key=jax.random.key(0))
    exact = ImageClassifier("NDDE", (1, 4, 4), 5, key=jax.random.key(0))
    logits = eqx.filter_jit(model)(y)
    np.testing.assert_allclose(logits, eqx.filter_jit(exact)(y), atol=0.05)
    assert logits.dtype == jnp.float64
