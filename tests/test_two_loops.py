"""Constant delays, of states and of derivatives, given as numbers and as functions: two loops that share little find their
breakpoints in ways of their own, and values and gradients are the same."""

import functools as ft

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx


@ft.cache
def solved(moving: bool):
    """(p, t0, t1, ts) ↦ a weighted sum of states and its gradient, compiled."""
    as_lag = (lambda delay: lx.Lag(lambda t, y, args: delay + 0 * t)) if moving else (lambda delay: delay)

    def total(p, t0, t1, ts):
        first, second, third, fourth = (as_lag(delay) for delay in p["delays"])
        lags = (first, lx.Derivative(second), lx.Derivative(third), fourth)

        def field(t, y, delayed, args):
            past = jnp.einsum("nde,ne->d", p["B"], jnp.sin(jnp.stack(delayed)))
            return (
                p["A"] @ jnp.tanh(y)
                + past
                + p["force"] * jnp.sin(t - t0)
                + p["switched"] * (t >= p["jumps"][0]).astype(float)
            )

        history = lambda t: p["past"] * jnp.cos(t - t0) + p["kick"] * (t >= p["jumps"][1]).astype(float)
        solution = lx.ddesolve(
            lx.DelayTerm(field, lags),
            dfx.Tsit5(),
            t0,
            t1,
            None,
            history,
            y0=p["y0"],
            jump_ts=p["jumps"],
            stepsize_controller=dfx.PIDController(rtol=1e-9, atol=1e-9),
            saveat=dfx.SaveAt(ts=ts, t1=True),
            max_steps=2048,
        )
        return jnp.sum(p["weights"] * solution.ys)

    return jax.jit(jax.value_and_grad(total))


def drawn(seed: int):
    rng = np.random.default_rng(seed)
    rng.random()
    t0, length = rng.choice([0.0, -7.3, 0.1, 50.0, 1e3]), rng.choice([1.0, 2.0, 3.0])
    delays = rng.uniform(0.2, 1.3, 4)
    p = {
        "delays": delays,
        "jumps": t0 + np.array([rng.uniform(0.1, 0.9) * length, -rng.uniform(0.05, 1.0)]),
        "A": 0.4 * rng.normal(size=(2, 2)),
        "B": rng.normal(size=(4, 2, 2)) * np.array([0.5, 0.2, 0.2, 0.5])[:, None, None],
        "force": 0.4 * rng.normal(size=2),
        "switched": rng.normal(size=2),
        "past": rng.normal(size=2),
        "kick": 0.5 * rng.normal(size=2),
        "weights": rng.normal(size=(4, 2)),
        "y0": rng.normal(size=2),
    }
    return p, t0, t0 + length, t0 + np.sort(rng.uniform(0, 1, 3)) * length


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [[59], range(40)], ids=["59", "forty"])
def test_numbers_and_functions(seeds):
    """At seed 59 rounding puts five floats between two breakpoints that are one: a step that long has no curvature, and the
    gradient of a derivative looked up in it was anything."""
    for seed in seeds:
        value, gradient = solved(False)(*drawn(seed))
        other, other_gradient = solved(True)(*drawn(seed))
        assert abs(value - other) < 1e-7, seed
        for name, part in gradient.items():
            assert np.allclose(part, other_gradient[name], rtol=0, atol=2e-6), (seed, name)
