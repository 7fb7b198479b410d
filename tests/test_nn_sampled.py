"""A past that was observed: splines through samples."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx
from lagrax import nn


def test_the_spline_is_of_third_order_and_smooth():
    errors = []
    for n in (21, 41):
        ts = jnp.linspace(-2.0, 0.0, n)
        past = nn.SampledHistory(ts, jnp.stack([jnp.sin(3 * ts), jnp.exp(ts)], axis=1))
        fine = jnp.linspace(-2.0, 0.0, 397)
        ys = jax.vmap(past)(fine)
        errors.append(jnp.max(jnp.abs(ys - jnp.stack([jnp.sin(3 * fine), jnp.exp(fine)], axis=1))))
    assert errors[0] / errors[1] > 6 and errors[1] < 2e-4
    slopes = jax.vmap(jax.jacfwd(past))(fine)
    assert jnp.max(jnp.abs(slopes[:, 0] - 3 * jnp.cos(3 * fine))) < 2e-2


def test_missing_values_and_ends():
    ts = np.array([-4.0, -3.0, -1.5, -0.5, 0.0])
    ys = np.array([1.0, 2.0, np.nan, 4.5, 5.0])
    past = nn.SampledHistory(ts, ys)
    assert past(-1.5) == pytest.approx(2.0 + 2.5 * 1.5 / 2.5) and past(0.0) == pytest.approx(5.0)
    assert jnp.isnan(past(-4.1)) and past(-4.0) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="first or last sample of the past is missing"):
        nn.SampledHistory(ts, np.array([np.nan, 2.0, 3.0, 4.0, 5.0]))
    with pytest.raises(ValueError, match="do not increase"):
        nn.SampledHistory(ts[::-1], ys)
    with pytest.raises(ValueError, match="at least four samples"):
        nn.SampledHistory(ts[:3], ys[:3])


def test_delays_longer_than_the_record_are_refused():
    past = nn.SampledHistory(np.linspace(-2.0, 0.0, 9), np.zeros(9))
    past.check({"a": 2.0, "b": nn.LearnableDelay(0.5, 0.1, 1.9)})
    with pytest.raises(ValueError, match="a delay may be 3, and the samples of the past are 2 long"):
        past.check((1.0, nn.LearnableDelay(0.5, 0.1, 3.0)))


def test_a_batch_of_pasts():
    ts = jnp.linspace(-1.0, 0.0, 41)
    term = lx.DelayTerm(lambda t, y, z, args: -z, 1.0)

    def end(rate):
        past, tight = nn.SampledHistory(ts, jnp.exp(rate * ts)), dfx.PIDController(rtol=1e-6, atol=1e-8)
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, past, stepsize_controller=tight).ys[0]

    rates = jnp.array([1.0, 2.0])
    assert jnp.allclose(jax.vmap(end)(rates), 1 - (1 - jnp.exp(-rates)) / rates, atol=1e-5)


def test_a_model_reads_an_observed_past():
    ts = np.linspace(-1.0, 0.0, 21)
    past = nn.SampledHistory(ts, np.exp(ts)[:, None])
    settings = {"history": nn.read_samples, "stepsize_controller": dfx.PIDController(rtol=1e-6, atol=1e-8)}
    field = lambda t, y, z, args: -z
    model = nn.NeuralDDE(field, 1.0, **settings)
    assert model(past)[0] == pytest.approx(1 - (1 - np.exp(-1.0)), abs=1e-4)
    jumped = nn.NeuralDDE(field, 1.0, y0=lambda x: x(0.0) + 2.0, jump_ts=(0.5,), **settings)
    assert jumped(past)[0] == pytest.approx(2 + 1 - (1 - np.exp(-1.0)), abs=1e-4)
    with pytest.raises(ValueError, match=r"a delay may be 1\.5"):
        nn.NeuralDDE(field, 1.5, **settings)(past)


def test_a_linear_skip_adds_a_matrix():
    skip = nn.LinearSkip(
        lambda t, y, z, args: y * z, np.array([[1.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 4.0]]), np.array([5.0, 6.0])
    )
    y, z = jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])
    assert skip(0.0, y, z, None).tolist() == [1 + 9 + 5 + 3, 4 + 16 + 6 + 8]
    with pytest.raises(ValueError, match="the weight takes 4"):
        skip(0.0, y, (z, z), None)
