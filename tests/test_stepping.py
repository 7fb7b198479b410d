"""Step size control, events, statistics and progress."""

import functools as ft

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import lagrax as lx

from .problems import decay, decay_solution

STEPS = dfx.SaveAt(steps=True)


def solve(controller=None, dt0=None, t1=4.0, delays=1.0, field=decay, history=1.0, args=1.0, solver=None, **kwargs):
    controller = dfx.PIDController(rtol=1e-6, atol=1e-6) if controller is None else controller
    solver = dfx.Tsit5() if solver is None else solver
    kwargs = {"max_steps": 512, **kwargs}
    return lx.ddesolve(
        lx.DelayTerm(field, delays), solver, 0.0, t1, dt0, history, args, stepsize_controller=controller, **kwargs
    )


def times(sol):
    ts = np.asarray(sol.ts)
    return ts[np.isfinite(ts)]


def test_fixed_steps_keep_their_grid():
    """A breakpoint interrupts the grid and does not move it."""
    ts = times(solve(dfx.ConstantStepSize(), 0.4, delays=0.9, saveat=STEPS))
    grid, breakpoints = np.arange(1, 11) * 0.4, np.array([0.9, 1.8, 2.7])
    # 0.9 · 4 = 3.6 is on the grid.
    np.testing.assert_allclose(ts, np.sort(np.concatenate([grid, breakpoints])), atol=1e-12)


def test_step_to():
    wanted = jnp.array([0.0, 0.3, 0.7, 1.9, 4.0])
    ts = times(solve(dfx.StepTo(wanted), saveat=STEPS))
    assert set(np.asarray(wanted[1:])) <= set(ts)
    assert {1.0, 2.0, 3.0} <= set(ts)
    assert np.max(np.diff(ts)) <= 1.0 + 1e-12


def test_steps_do_not_outrun_the_smallest_delay():
    """The solution is smooth and the tolerance loose, but a step longer than the delay would read what is not there yet."""
    sol = solve(
        dfx.PIDController(rtol=1e-2, atol=1e-2), delays=(0.1, 2.0), field=lambda t, y, z, a: -0.5 * z[0], saveat=STEPS
    )
    ts = np.concatenate([[0.0], times(sol)])
    assert np.max(np.diff(ts)) <= 0.1 + 1e-12
    exact = decay_solution(np.array(4.0), 0.5, 0.1)
    np.testing.assert_allclose(sol.ys[len(ts) - 2], exact, rtol=1e-3)


def test_dtmin_exempts_steps_cut_short():
    controller = dfx.PIDController(rtol=1e-3, atol=1e-3, dtmin=0.2, force_dtmin=False)
    sol = solve(controller, 0.25, delays=(1.0, 1.05), field=lambda t, y, z, a: -0.3 * z[0] - 0.2 * z[1], saveat=STEPS)
    ts = times(sol)
    assert np.min(np.diff(ts)) < 0.06
    assert sol.result == lx.RESULTS.successful


def test_dtmax():
    ts = times(solve(dfx.PIDController(rtol=1e-2, atol=1e-2, dtmax=0.3), saveat=STEPS))
    assert np.max(np.diff(ts)) <= 0.3 * 1.011


def test_norm_sees_the_users_structure():
    seen = []

    def norm(error):
        seen.append(jax.tree.structure(error))
        return optx.rms_norm(error)

    solve(dfx.PIDController(rtol=1e-3, atol=1e-3, norm=norm), history={"y": 1.0}, field=lambda t, y, z, a: {"y": -z["y"]})
    assert set(seen) == {jax.tree.structure({"y": 0.0})}


def test_declared_jumps_are_stepped_on_and_echo():
    field = lambda t, y, z, args: -z + jnp.where(t < 0.35, 0.0, 1.0)
    sol = solve(dfx.PIDController(rtol=1e-9, atol=1e-9), field=field, jump_ts=jnp.array([0.35]), saveat=STEPS, t1=1.2)
    ts = times(sol)
    assert 0.35 in ts and 1.0 in ts
    # Exactly: 1 - t, then + (t - 0.35); from t = 1 on, z = 1 - (t - 1) + ….
    np.testing.assert_allclose(sol.ys[np.searchsorted(ts, 1.0)], 0.65, atol=1e-8)
    exact = 0.65 - 0.2 + 0.2**2 / 2 + 0.2
    np.testing.assert_allclose(sol.ys[len(ts) - 1], exact, atol=1e-8)
    later = times(solve(field=field, jump_ts=jnp.array([0.35]), saveat=STEPS, t1=3.0))
    assert np.any(np.isclose(later, 1.35)) and np.any(np.isclose(later, 2.35))


@pytest.mark.parametrize("solver, stages", [(dfx.Tsit5(), 6), (dfx.Heun(), 2)], ids=["reuses", "does not"])
def test_evaluations_are_counted(solver, stages):
    calls = 0

    def count(_):
        nonlocal calls
        calls += 1

    def field(t, y, delayed, args):
        jax.debug.callback(count, t)
        return -delayed

    sol = solve(dfx.PIDController(rtol=1e-3, atol=1e-3), field=field, solver=solver, t1=2.5)
    jax.effects_barrier()
    assert sol.stats["num_evaluations"] == calls
    assert sol.stats["num_steps"] == sol.stats["num_accepted_steps"] + sol.stats["num_rejected_steps"]
    assert calls >= stages * int(sol.stats["num_accepted_steps"])
    assert sol.stats["max_steps"] == 512


def test_event_is_located():
    condition = lambda t, y, args, **kwargs: y - 0.2
    event = dfx.Event(condition, optx.Newton(1e-10, 1e-10))
    ts = jnp.array([0.1, 0.5, 0.79, 0.81, 3.0])
    saveat = dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)])
    sol = solve(event=event, saveat=saveat)
    assert sol.result == lx.RESULTS.event_occurred
    assert sol.event_mask
    np.testing.assert_allclose([sol.ts[1][0], sol.ys[1][0]], [0.8, 0.2], atol=1e-9)
    np.testing.assert_allclose(sol.ys[0][:3], 1 - ts[:3], atol=1e-9)
    assert jnp.all(jnp.isinf(sol.ts[0][3:])) and jnp.all(jnp.isinf(sol.ys[0][3:]))


def test_events_by_direction_and_by_truth():
    crossing = lambda t, y, args, **kwargs: y
    up = solve(event=dfx.Event(crossing, optx.Newton(1e-10, 1e-10), direction=True), t1=8.0)
    down = solve(event=dfx.Event(crossing, optx.Newton(1e-10, 1e-10), direction=False), t1=8.0)
    assert up.ts[0] > down.ts[0]
    np.testing.assert_allclose([up.ys[0], down.ys[0]], 0.0, atol=1e-9)
    late = solve(event=dfx.Event(lambda t, y, args, **kwargs: t > 1.5), t1=8.0)
    assert late.result == lx.RESULTS.event_occurred and 1.5 < late.ts[0] <= 2.5
    never = solve(event=dfx.Event(lambda t, y, args, **kwargs: y > 10), t1=2.0)
    assert never.result == lx.RESULTS.successful and never.ts[0] == 2.0


def test_progress_meter(capfd):
    solve(progress_meter=dfx.TextProgressMeter())
    jax.effects_barrier()
    assert "100.00%" in capfd.readouterr().out


@pytest.mark.parametrize("condition", [lambda t: t > 0.7, lambda t: t >= 0.7], ids=["after", "from"])
def test_either_convention_at_a_jump(condition):
    """y' = H(t - 0.7) - y(t - 1), exactly 1 - 2 + 1.3 + 1/2 - 0.3²/2 at t = 2."""
    field = lambda t, y, z, args: jnp.where(condition(t), 1.0, 0.0) - z
    sol = solve(field=field, jump_ts=jnp.array([0.7]), t1=2.0)
    np.testing.assert_allclose(sol.ys[0], 0.755, atol=1e-6)


def test_jump_at_time_zero():
    """The neighbours of 0 are denormal, and XLA rounds those to 0: the two sides must still be told apart."""
    field = lambda t, y, z, args: jnp.where(t < 0, 3.0, -1.0) * jnp.ones_like(y)
    solution = lx.ddesolve(
        lx.DelayTerm(field, 5.0), dfx.Tsit5(), -1.0, 1.0, None, jnp.array(0.0), jump_ts=jnp.array([0.0]),
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8),
    )  # fmt: skip
    np.testing.assert_allclose(solution.ys[0], 2.0, rtol=1e-14)
    assert solution.stats["num_rejected_steps"] == 0


def test_jump_of_the_field_on_a_breakpoint():
    """y' = -y(t - 1) + 5·1[t ≥ 1]: at t = 1 the field jumps where a kink arrives, and y(2) = 9/2."""
    field = lambda t, y, z, args: -z + jnp.where(t < 1, 0.0, 5.0)
    solution = lx.ddesolve(
        lx.DelayTerm(field, 1.0), dfx.Tsit5(), 0.0, 2.0, None, jnp.array(1.0), jump_ts=jnp.array([1.0]),
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8),
    )  # fmt: skip
    np.testing.assert_allclose(solution.ys[0], 4.5, rtol=1e-13)
    assert solution.stats["num_rejected_steps"] == 0


def test_a_state_of_less_precision_than_time():
    """A delay made in double precision, and data in single: the first step was selected in neither."""
    solve = lambda tau, y: lx.ddesolve(lx.DelayTerm(lambda t, y, d, a: -d, tau), dfx.Tsit5(), 0.0, 2.0, None, y).ys[0, 0]
    with jax.numpy_dtype_promotion("standard"):
        value, slope = jax.value_and_grad(solve)(jnp.ones((), jnp.float64), jnp.ones(2, jnp.float32))
    # y(2) = 1 - 2 + (2 - tau)^2 / 2
    assert value.dtype == jnp.float32 and abs(value + 0.5) < 1e-5 and abs(slope + 1) < 1e-5


@pytest.mark.parametrize("memory", [None, 128])
def test_many_equal_delays_behind_a_jump(memory):
    """Each echo of the jump ends a step of its own, of length zero: more of them than a lookup searches at once."""
    field = lambda t, y, delayed, args: -sum(delayed) / 12
    controller = dfx.PIDController(rtol=1e-9, atol=1e-9)

    def end(delays, t0):
        term = lx.DelayTerm(field, list(delays))
        options = {"max_steps": 128, "stepsize_controller": controller, "memory": memory}
        return lx.ddesolve(term, dfx.Tsit5(), t0, t0 + 4.3, None, 1.0, y0=0.5, **options).ys[0]

    with jax.enable_x64(True):
        values = jax.jit(jax.value_and_grad(end))
        for t0 in (1e-4, 0.3, 1e3):
            value, gradient = values(np.ones(12), t0)
            # y' = -y(t - 1) from 1/2, with y = 1 before
            assert abs(value - 0.2465651667) < 1e-8
            later, earlier = (values(np.full(12, 1 + h), t0)[0] for h in (1e-4, -1e-4))
            assert np.allclose(gradient, (later - earlier) / 2e-4 / 12, rtol=0, atol=1e-7)


def test_implicit_steps_of_length_zero():
    """Two equal delays behind a jump: between its two echoes an implicit step has nothing to solve."""

    def end(delays, solver):
        term = lx.DelayTerm(lambda t, y, z, args: 1.8 * y * (1 - z[0] - 0.3 * z[1]), tuple(delays))
        controller = dfx.PIDController(rtol=1e-8, atol=1e-8)
        past = lambda t: 2 + t
        return lx.ddesolve(term, solver, 0.0, 1.7, None, past, y0=1.5, stepsize_controller=controller, max_steps=512).ys[0]

    with jax.enable_x64(True):
        implicit, explicit = (
            jax.jit(jax.value_and_grad(ft.partial(end, solver=solver)))(jnp.ones(2))
            for solver in (dfx.Kvaerno5(), dfx.Tsit5())
        )
        assert np.allclose(implicit[0], explicit[0], rtol=0, atol=1e-6)
        assert np.allclose(implicit[1], explicit[1], rtol=0, atol=1e-5)
