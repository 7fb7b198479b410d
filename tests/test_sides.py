"""Which side of a jump is seen: by fields and histories that compute where they are, and by delays that jump."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

PERIODS = jnp.array([0.61, 0.63, 0.69, 0.77, 0.9])
"""With most of these `sin` and `floor` round to the wrong side of the first float behind a jump."""

PHASES = {
    "sin": lambda t, period: jnp.sin(2 * jnp.pi * t / period) > 0,
    "floor": lambda t, period: jnp.floor(2 * t / period) % 2 == 0,
    "remainder": lambda t, period: (t / period) % 1 < 0.5,
    "shifted": lambda t, period: jnp.sin(2 * jnp.pi * (t + 6 * period) / period) > 0,
}


def solved(field, history, jumps, delay, y0=0.2, t1=2.9, **options):
    controller = dfx.PIDController(rtol=1e-9, atol=1e-9)
    term = lx.DelayTerm(field, delay)
    return lx.ddesolve(
        term,
        dfx.Tsit5(),
        0.0,
        t1,
        None,
        history,
        y0=y0,
        jump_ts=jumps,
        stepsize_controller=controller,
        max_steps=512,
        **options,
    ).ys[0]


def counted(t, jumps):
    """Whether an even number of jumps is over, by comparisons, which do not round."""
    return jnp.sum(t >= jax.lax.stop_gradient(jumps)) % 2 == 0


def of_all(function):
    return jax.jit(jax.vmap(jax.value_and_grad(function)))(PERIODS)


@pytest.mark.parametrize("name", PHASES)
def test_a_field_that_computes_its_phase(name):
    """Gradients with respect to the period were off by up to a factor of six for a third of all periods."""

    def end(on, period):
        jumps = jnp.arange(1.0, 10.0) * period / 2
        return solved(lambda t, y, z, args: on(t, jumps, period) - z, 0.2, jumps, 1.3)

    found = of_all(lambda period: end(lambda t, jumps, period: jnp.where(PHASES[name](t, period), 1.0, 0.0), period))
    expected = of_all(lambda period: end(lambda t, jumps, period: jnp.where(counted(t, jumps), 1.0, 0.0), period))
    # (At t = 0 the shifted phase rounds down, which error control has to find out.)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if name == "shifted" else 1e-10)


def test_a_history_that_computes_its_phase():
    def end(past, period):
        jumps = -jnp.arange(6.0, 0.0, -1.0) * period / 2
        return solved(lambda t, y, z, args: 0.1 * y - z, past(jumps, period), jumps, 1.3)

    found = of_all(
        lambda period: end(lambda jumps, p: lambda t: jnp.where(jnp.sin(2 * jnp.pi * t / p) > 0, 1.0, 0.0), period)
    )
    expected = of_all(lambda period: end(lambda jumps, p: lambda t: jnp.where(counted(t, jumps), 0.0, 1.0), period))
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("before", [jnp.less, jnp.less_equal])
def test_a_delay_that_jumps_over_a_kink(before):
    """y' = -y(t - 1) up to 0.7, then -y(t - 0.4): t - τ jumps over the kink at 0. By hand: -0.126, 0 and -0.476."""

    def end(p):
        switch = jax.lax.stop_gradient(p[0])
        delay = lambda t, y, args: jnp.where(before(t, switch), p[1], p[2])
        return solved(lambda t, y, z, args: -z, 1.0, p[:1], delay, y0=None, t1=1.7)

    value, gradient = jax.jit(jax.value_and_grad(end))(jnp.array([0.7, 1.0, 0.4]))
    np.testing.assert_allclose(value, 0.0104666666666667, rtol=1e-10)
    np.testing.assert_allclose(gradient, [-0.126, 0, -0.476], atol=1e-9)


def test_piecewise_constant_arguments():
    """y' = a y(⌊t/h⌋ h), as under sampled control: (1 + a h)ⁿ (1 + a (t - n h))."""

    def end(p):
        jumps = jnp.arange(1.0, 7.0) * p[1]
        number = lambda t: jnp.sum(t >= jax.lax.stop_gradient(jumps), dtype=t.dtype)
        at = lx.At(lambda t, y, args: number(t) * p[1])
        return solved(lambda t, y, z, args: p[0] * z, 1.0, jumps, at, y0=None, t1=3.1)

    exact = lambda p: (1 + p[0] * p[1]) ** 6 * (1 + p[0] * (3.1 - 6 * p[1]))
    p = jnp.array([-0.8, 0.5])
    found, expected = (jax.jit(jax.value_and_grad(f))(p) for f in (end, exact))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9)


def test_a_delay_that_jumps_at_a_time_that_is_not_declared():
    """It lands several kinks behind, and sees what is there at once."""

    def end(jumps):
        delay = lambda t, y, args: jnp.where(t < 3, 2.5, 0.4)
        return solved(
            lambda t, y, z, args: -z[0] + 0.2 * z[1], lambda t: jnp.cos(3 * t), jumps, (delay, 0.3), y0=0.5, t1=4.0
        )

    np.testing.assert_allclose(end(None), end(jnp.array([3.0])), atol=1e-8)


def test_kinks_that_hardly_differ():
    """Seven delays and five jumps give some hundred kinks, 1e-7 apart: each is passed, and none read beyond its end."""
    near = 1e-7 * np.random.default_rng(0).normal(size=24)[12:]
    delays = np.array([1.3, 0.6, 0.8, 1.1, 1.1, 1.1, 1.9]) + near[:7]
    jumps = jnp.asarray(np.array([0.4, 1.0, 1.1, 1.2, 1.9]) + near[7:])
    field = lambda t, y, seen, args: sum((-0.3 - 0.05 * i) * z for i, z in enumerate(seen))

    def end(delays):
        controller = dfx.PIDController(rtol=1e-6, atol=1e-6)
        return lx.ddesolve(
            lx.DelayTerm(field, delays), dfx.Tsit5(), 0.0, 6.0, None, jnp.cos, y0=0.7, jump_ts=jumps, max_steps=16384,
            stepsize_controller=controller,
        ).ys[0]  # fmt: skip

    functions = tuple(lambda t, y, args, delay=delay: delay for delay in delays)
    np.testing.assert_allclose(end(functions), end(tuple(delays)), atol=1e-6)


def test_a_delay_of_a_list_of_functions():
    """The usual way to write functions in a loop: what differs between them is a default."""
    field = lambda t, y, z, args: -z[0] - 0.3 * z[1]
    end = lambda delays: lx.ddesolve(lx.DelayTerm(field, delays), dfx.Tsit5(), 0.0, 3.0, None, 1.0, max_steps=256).ys[0]
    written = lambda p: end(tuple(lambda t, y, args, delay=delay: delay for delay in p))
    closed = lambda p: end((lambda t, y, args: p[0], lambda t, y, args: p[1]))
    p = jnp.array([1.0, 0.7])
    np.testing.assert_allclose(jax.grad(written)(p), jax.grad(closed)(p), rtol=1e-12)
