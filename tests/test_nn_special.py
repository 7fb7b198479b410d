"""What delay equations represent and ordinary ones of the same dimension cannot: the paper's examples."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from lagrax.nn import NeuralDDE, representing_dde, separating_dde


def test_crossing():
    """x' = -2 x(t - 1) takes -1 to 1 and 1 to -1, on paths that cross."""
    model = NeuralDDE(lambda t, y, delayed, args: -2 * delayed, 1.0)
    np.testing.assert_allclose(model(jnp.array([[-1.0], [1.0]])), [[1.0], [-1.0]], rtol=1e-12)


def annulus(d):
    """Points in the ball of radius 1 and in the shell between 2 and 3, with labels 1 and -1."""
    directions = jr.normal(jr.key(0), (600, d))
    directions /= jnp.linalg.norm(directions, axis=-1, keepdims=True)
    inside, outside = jr.uniform(jr.key(1), (200,)), jr.uniform(jr.key(2), (400,), minval=2.0, maxval=3.0)
    radii = jnp.concatenate([inside, outside])
    return radii[:, None] * directions, jnp.where(radii <= 1, 1.0, -1.0)


def linear_accuracy(x, labels):
    """How many points the hyperplane by least squares has on the right side."""
    features = jnp.concatenate([x, jnp.ones((len(x), 1))], axis=-1)
    weights = jnp.linalg.lstsq(features, labels)[0]
    return jnp.mean(jnp.sign(features @ weights) == labels)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_separation(d):
    """Proposition 1 with r1 = 1, r2 = 2, r3 = 3, T = τ = 10."""
    x, labels = annulus(d)
    moved = separating_dde(1.0, 2.0, t1=10.0)(x)
    distance = np.linalg.norm(x, axis=-1)
    np.testing.assert_allclose(moved[:, 0], x[:, 0] + 10 * (distance - 1.5), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(moved[:, 1:], x[:, 1:])
    assert linear_accuracy(x, labels) < 0.9
    assert linear_accuracy(moved, labels) == 1.0


def test_separation_is_differentiable_at_the_centre():
    model = separating_dde(1.0, 2.0)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: model(x)[0]))(jnp.zeros(2)), [1.0, 0.0])


def complex_square(z):
    return jnp.stack([z[..., 0] ** 2 - z[..., 1] ** 2, 2 * z[..., 0] * z[..., 1]], axis=-1)


@pytest.mark.parametrize("function", [jnp.negative, jnp.abs, complex_square, jnp.zeros_like, lambda z: z[..., ::-1]])
@pytest.mark.parametrize("t1", [1.0, 2.5])
def test_representation(function, t1):
    """Theorem 2 for maps that reflect, fold, wrap twice around, collapse and swap: no flow of a NODE does."""
    x = jr.normal(jr.key(3), (50, 2))
    np.testing.assert_allclose(representing_dde(function, t1)(x), function(x), rtol=1e-12, atol=1e-12)


def test_representation_of_a_network():
    network = eqx.nn.MLP(2, 2, 8, 1, key=jr.key(4))
    model, x = representing_dde(network), jr.normal(jr.key(3), (2,))
    np.testing.assert_allclose(model(x), network(x), rtol=1e-12)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda model: jnp.sum(model(x))))(model).field.function
    expected = eqx.filter_grad(lambda network: jnp.sum(network(x)))(network)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_errors():
    with pytest.raises(ValueError, match=r"got r1 = 2\.0 and r2 = 1\.0, expected 0 < r1 < r2"):
        separating_dde(2.0, 1.0)
