"""Gradients of every model with respect to every parameter and the input, against finite differences."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import lagrax as lx
from lagrax._adjoint._count import counting
from lagrax.nn import Form, NeuralDDE

from .differences import gradient_and_differences
from .nn_models import NAMES, TIGHT, make, mlp

X = jnp.array([0.8, -0.4])


def check_gradient(f, x, rtol=1e-6):
    gradient, expected = gradient_and_differences(f, x)
    np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=rtol * np.max(np.abs(expected)))
    return gradient


def weighted(y):
    """A loss that treats no two components alike."""
    return jnp.sum(jnp.cos(jnp.arange(1.0, y.size + 1)) * (y.ravel() + y.ravel() ** 2))


@pytest.mark.parametrize("name", NAMES)
def test_features(name):
    parameters, rest = eqx.partition(make(name, TIGHT), eqx.is_inexact_array)
    gradient = check_gradient(lambda inputs: weighted(eqx.combine(inputs[0], rest)(inputs[1])), (parameters, X))
    # Nothing is cut off: every weight matters, the initial ODE's and those that start a w(t) too.
    assert np.all(np.abs(gradient) > 1e-8)


@pytest.mark.parametrize("name", ["NDDE, two learned delays", "A+NODE+NDDE, learned delay"])
def test_sequences(name):
    ts = jnp.array([0.1, 0.5, 0.9, 1.9])
    parameters, rest = eqx.partition(make(name, TIGHT), eqx.is_inexact_array)
    check_gradient(lambda inputs: weighted(eqx.combine(inputs[0], rest).sequence(inputs[2], inputs[1])), (parameters, X, ts))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NDDE, two learned delays", "A+NODE+NDDE, learned delay"])
def test_hessians(name):
    """Forward over reverse, in all parameters, delays among them, and the input: against differences of the gradient."""
    parameters, rest = eqx.partition(make(name, TIGHT), eqx.is_inexact_array)
    point, unravel = ravel_pytree((parameters, X))

    def loss(v):
        parameters, x = unravel(v)
        return weighted(eqx.combine(parameters, rest)(x))

    gradient_and_curvature = jax.jit(lambda v, u: jax.jvp(jax.grad(loss), (v,), (u,)))
    gradient = lambda v: gradient_and_curvature(v, u)[0]
    u, w = jnp.cos(jnp.arange(0.0, point.size)), jnp.sin(1.7 * jnp.arange(0.0, point.size))
    difference = lambda h: (gradient(point + h * u) - gradient(point - h * u)) / (2 * h)
    along_u, along_w = (gradient_and_curvature(point, direction)[1] for direction in (u, w))
    expected = (4 * difference(5e-4) - difference(1e-3)) / 3
    np.testing.assert_allclose(along_u, expected, atol=1e-6 * float(jnp.max(jnp.abs(expected))))
    np.testing.assert_allclose(w @ along_u, u @ along_w, rtol=1e-9)


def test_learned_initial_function():
    class Ramp(eqx.Module):
        slope: jax.Array

        def __call__(self, t, x):
            return x + self.slope * jnp.sin(t)

    model = NeuralDDE(mlp(Form.DELAYED), 0.7, history=Ramp(jnp.array([0.5, -1.0])), t1=1.3, stepsize_controller=TIGHT)
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)
    check_gradient(lambda inputs: weighted(eqx.combine(inputs[0], rest)(inputs[1])), (parameters, X))


@pytest.mark.parametrize("name", ["NODE"])
def test_adjoint_per_call(name):
    """The adjoint equation of the paper gives the gradient too."""
    model = make(name, TIGHT)
    gradient = lambda adjoint: jax.jit(jax.grad(lambda x: weighted(model(x, adjoint=adjoint))))(X)
    np.testing.assert_allclose(gradient(lx.ContinuousAdjoint()), gradient(None), rtol=1e-6)


def test_backward_evaluations():
    """Twice the steps, twice the evaluations."""

    def evaluations(dt0):
        model = NeuralDDE(mlp(Form.CONCAT), 1.0, dt0=dt0, stepsize_controller=dfx.ConstantStepSize(), max_steps=16)
        with counting() as found:
            jax.jit(jax.grad(lambda x: jnp.sum(model(x))))(X).block_until_ready()
        return found[0]

    few = evaluations(1 / 4)
    assert few > 0 and evaluations(1 / 8) == 2 * few
