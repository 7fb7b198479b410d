"""What once went wrong with delays that move and vanish, silently."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

from .moving_problems import MOVING
from .problems import decay

FROM_ZERO = (dfx.Tsit5(), 0.0, 4.0, None, 0.0)


def test_a_delay_that_looks_over_a_jump_for_a_moment_is_seen():
    """α has a peak of height 0.02 and width 2w = 0.126 anywhere between the places where steps look at it.

    The past is 0 before t0 and 1 after it, so that y falls from 1 by 2w, and stays where it is if the peak is not seen.
    """
    peak = lx.At(lambda t, y, centre: 0.02 - 5 * (t - centre) ** 2)
    term = lx.DelayTerm(lambda t, y, z, args: -z, peak)
    run = jax.jit(lambda centre: lx.ddesolve(term, *FROM_ZERO, centre, y0=1.0).ys[0])
    centres = np.linspace(0.5, 3.5, 31)
    ends = np.array([float(run(centre)) for centre in centres])
    assert np.allclose(ends, 1 - 2 * np.sqrt(0.004), rtol=0, atol=1e-6)


def test_a_peak_is_seen_by_one_of_several_delays():
    """Of three delays the middle one peaks, and the others go forwards all the time."""
    peak = lx.At(lambda t, y, centre: 0.02 - 5 * (t - centre) ** 2)
    delays = [lx.At(lambda t, y, args: t / 9 - 3), peak, lambda t, y, args: 50.0]
    term = lx.DelayTerm(lambda t, y, z, args: -z[0] - z[1] - z[2], delays)
    ends = jax.jit(jax.vmap(lambda centre: lx.ddesolve(term, *FROM_ZERO, centre, y0=1.0).ys[0]))(jnp.linspace(0.5, 3.5, 7))
    assert np.allclose(ends, 1 - 2 * np.sqrt(0.004), rtol=0, atol=1e-6)


def test_a_delay_that_goes_wrong_is_named_for_what_it_is():
    """Negative by less than the tolerance of states (which time does not have), infinite, NaN: later, and from the start."""
    delay = lambda t, y, p: jnp.where(t > p[1], p[0], 1.0)
    solve = lambda p: lx.ddesolve(
        lx.DelayTerm(lambda t, y, z, p: -z, delay), dfx.Tsit5(), 0.0, 4.0, None, 1.0, p, throw=False, max_steps=256
    )
    run = jax.jit(lambda p: solve(p).result)
    for value, expected in {-1e-6: "advanced_argument", np.inf: "lag_nonfinite", np.nan: "lag_nonfinite"}.items():
        for since in (1.5, -1.0):
            assert run(jnp.array([value, since])) == getattr(lx.RESULTS, expected), (value, since)


def test_an_infinite_constant_is_refused():
    with pytest.raises(ValueError, match="expected a positive finite number"):
        lx.ddesolve(lx.DelayTerm(decay, lx.Lag(np.inf, overlap=True)), dfx.Tsit5(), 0.0, 1.0, None, 1.0, 1.0)


@pytest.mark.parametrize("adjoint", [lx.DiscreteAdjoint(), lx.ForwardMode()], ids=lambda a: type(a).__name__)
def test_the_derivative_of_sweeps_that_do_not_converge_is_not_a_number(adjoint):
    """Where the solution stands still a step may be long beyond all convergence, which only its derivative shows."""
    term = lx.DelayTerm(lambda t, y, z, args: -50 * z, lx.Lag(0.0, overlap=True))
    end = lambda past: 2 * (lx.ddesolve(term, dfx.Tsit5(), 0.0, 4.0, 2.0, past, adjoint=adjoint).ys[0],)
    differentiate = jax.grad if isinstance(adjoint, lx.DiscreteAdjoint) else jax.jacfwd
    slope, value = jax.jit(differentiate(end, has_aux=True))(jnp.array(0.0))
    assert value == 0 and np.isnan(slope)


@pytest.mark.slow
def test_a_derivative_that_depends_on_itself_at_the_start():
    """y'(t) = exp(-y) + p (sin y'(qt) - 0.3): y'(0) solves an equation, as do the derivatives of y(3)."""

    def end(x, adjoint):
        p, q, past = x
        term = lx.DelayTerm(
            lambda t, y, z, args: jnp.exp(-y) + p * (jnp.sin(z) - 0.3), lx.Derivative(lx.At(lambda t, y, args: q * t))
        )
        controller = dfx.PIDController(1e-10, 1e-10)
        options = {"stepsize_controller": controller, "max_steps": 512, "adjoint": adjoint}
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 3.0, None, lambda t: past + t / 10, **options).ys[0]

    x = jnp.array([0.3, 0.6, 1.0])
    value = jax.jit(lambda x: end(x, lx.DiscreteAdjoint()))
    differences = [float(value(x + e) - value(x - e)) / 2e-4 for e in 1e-4 * np.eye(3)]
    backward = jax.jit(jax.grad(lambda x: end(x, lx.DiscreteAdjoint())))(x)
    forward = jax.jit(jax.jacfwd(lambda x: end(x, lx.ForwardMode())))(x)
    assert np.allclose(backward, differences, rtol=0, atol=1e-7)
    assert np.allclose(forward, backward, rtol=0, atol=1e-9)


def test_a_derivative_that_depends_on_itself_too_strongly_is_refused():
    """y'(t) = 1 - y - a y'(t/2): y'(0) = 1 - a y'(0) is found by repetition for a = 1/2, and not for a = 2."""
    term = lx.DelayTerm(lambda t, y, z, a: 1 - y - a * z, lx.Derivative(lx.At(lambda t, y, a: t / 2)))
    run = jax.jit(lambda a: lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, lambda t: t, a, throw=False, max_steps=64).result)
    assert run(0.5) == lx.RESULTS.successful
    assert run(2.0) == lx.RESULTS.no_convergence


def test_a_rejected_step_leaves_none_of_a_few_floats():
    """Behind the kink at t = 1 a step that was far too long saw the delay leave the past at its very start, and the next one
    ended there. A step of 4e-15 has no curvature, and a second derivative was off by 0.13 of 5.9."""
    problem = MOVING["state-dependent delay"]
    run = jax.jit(lambda p: problem.solve(p, 1e-9, t1=5.0, saveat=dfx.SaveAt(steps=True)).ts)
    for b in (1.0, 1.0 + 1e-9, 1.001):
        ts = run(jnp.array([1.0, b, 0.25]))
        assert np.diff(ts[np.isfinite(ts)]).min() > 1e-6


def test_fixed_steps_settle_where_the_state_passes_zero():
    """What rounding leaves is not of the size of the state there: one step in twelve of these runs did not settle."""

    def succeeds(frequency):
        integral = lx.Integral(0.0, 2.0, lambda s: jnp.abs(s - 0.9), kinks=(0.9,))
        term = lx.DelayTerm(lambda t, y, total, args: -total / 2, integral)
        past = lambda t: jnp.cos(frequency * t)
        options = {"stepsize_controller": dfx.ConstantStepSize(), "max_steps": 64, "throw": False}
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 5.0, 0.25, past, **options).result == lx.RESULTS.successful

    frequencies = jnp.asarray(np.random.default_rng(0).uniform(0.5, 3, 100))
    assert jnp.all(jax.jit(jax.vmap(succeeds))(frequencies))
