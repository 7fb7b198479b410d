"""Delays that are learned."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import lagrax as lx
from lagrax.nn import Form, LearnableDelay, NeuralDDE, SharedDelay

from .nn_models import TIGHT, mlp
from .problems import hutchinson


@pytest.mark.parametrize("init, lower, upper", [(1.0, 0.2, 3.0), (0.21, 0.2, 3.0), (1e3, 1.0, 1e6)])
def test_parametrisation(init, lower, upper):
    delay = LearnableDelay(init, lower, upper)
    np.testing.assert_allclose(delay(), init, rtol=1e-12)
    # dτ/draw = (τ - lower)(upper - τ) / (upper - lower)
    slope = eqx.filter_grad(lambda delay: delay())(delay).raw
    np.testing.assert_allclose(slope, (init - lower) * (upper - init) / (upper - lower), rtol=1e-10)
    for raw in (-30.0, 30.0):
        assert lower <= eqx.tree_at(lambda d: d.raw, delay, jnp.array(raw))() <= upper


@pytest.mark.parametrize("init, lower, upper", [(0.1, 0.2, 3.0), (3.0, 0.2, 3.0), (1.0, 0.0, 3.0), (1.0, 0.5, np.inf)])
def test_bad_bounds(init, lower, upper):
    with pytest.raises(ValueError, match=f"init = {init}, .*expected 0 < lower < init < upper"):
        LearnableDelay(init, lower, upper)


@pytest.mark.parametrize("factors", [(), (1.0, 0.0)])
def test_bad_factors(factors):
    with pytest.raises(ValueError, match="expected positive finite numbers"):
        SharedDelay(1.0, factors)


def test_what_is_trained():
    """Of two delays only the learnable one; a shared one once."""
    separate = NeuralDDE(mlp(Form.CONCAT, num_delays=2), (LearnableDelay(0.5, 0.1, 1.0), 0.7))
    shared = NeuralDDE(mlp(Form.CONCAT, num_delays=2), SharedDelay(LearnableDelay(0.35, 0.1, 1.0), (1.0, 2.0)))
    for model in (separate, shared):
        gradient = eqx.filter_jit(eqx.filter_grad(lambda model: jnp.sum(model(jnp.ones(2)))))(model)
        assert len(jax.tree.leaves(gradient.delays)) == 1
        assert np.abs(jax.tree.leaves(gradient.delays)[0]) > 1e-6


def test_shared_delay():
    """(τ, 2τ) as one delay: the solution of separate ones, and the chain rule for the gradient."""
    field, x = mlp(Form.CONCAT, num_delays=2), jnp.array([1.0, -0.5])
    run = lambda delays: jnp.sum(NeuralDDE(field, delays, t1=1.1, stepsize_controller=TIGHT)(x))
    shared, slope = jax.jit(jax.value_and_grad(lambda tau: run(SharedDelay(tau, (1, 2)))))(0.35)
    separate, slopes = jax.jit(jax.value_and_grad(run))((0.35, 0.7))
    np.testing.assert_allclose(shared, separate, rtol=1e-9)
    np.testing.assert_allclose(slope, slopes[0] + 2 * slopes[1], rtol=1e-6)


@pytest.mark.parametrize("start", [0.6])
def test_hutchinson(start):
    """τ = 1 is learned from data, from 40 % off."""
    ts, rate = jnp.linspace(0.0, 4.0, 41), 1.8
    saveat = dfx.SaveAt(ts=ts)
    term = lx.DelayTerm(hutchinson, 1.0)
    data = lx.ddesolve(term, dfx.Dopri5(), 0.0, 4.0, None, 0.3, rate, saveat=saveat, stepsize_controller=TIGHT).ys
    model = NeuralDDE(hutchinson, LearnableDelay(start, lower=0.2, upper=3.0), max_steps=512)

    def residuals(delay, model):
        model = eqx.tree_at(lambda m: m.delays, model, delay)
        return model.sequence(ts, jnp.array(0.3), args=rate, adjoint=lx.ForwardMode()) - data

    fit = optx.least_squares(residuals, optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6), model.delays, args=model)
    assert abs(fit.value() - 1.0) < 1e-3
