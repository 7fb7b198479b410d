"""What was once wrong without a word, or failed for the wrong reason: each exact now, or refused."""

import math
import operator

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import lagrax as lx

TIGHT = dfx.PIDController(rtol=1e-9, atol=1e-9)
minus = lambda t, y, z, args: -z


def solve(field=minus, t0=0.0, t1=2.0, dt0=None, history=1.0, args=None, solver=None, delay=1.0, **kwargs):
    solver = dfx.Tsit5() if solver is None else solver
    kwargs = {"stepsize_controller": TIGHT, "max_steps": 256} | kwargs
    return lx.ddesolve(lx.DelayTerm(field, delay), solver, t0, t1, dt0, history, args, **kwargs)


def behind(t, jump, strictly):
    return jnp.where(strictly, t > jump, t >= jump)


@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Kvaerno5()], ids=["explicit", "implicit"])
def test_a_jump_of_the_history(solver):
    """y' = -H(t - 0.71 - s) cos(t - 0.71 - s): y(0.3) = 1 - sin(0.04), dy/ds = cos(0.04)."""

    def final(s, strictly):
        history = lambda u: jnp.where(behind(u, s, strictly), jnp.cos(u - s), 0.0)
        return solve(t0=0.1, t1=0.3, history=history, y0=1.0, jump_ts=s[None], delay=0.71, solver=solver).ys[0]

    run = jax.jit(jax.value_and_grad(final))
    for strictly in (True, False):
        np.testing.assert_allclose(run(jnp.array(-0.45), strictly), [1 - np.sin(0.04), np.cos(0.04)], atol=2e-8)


def test_a_jump_of_the_history_with_fixed_steps():
    options = {"stepsize_controller": dfx.ConstantStepSize(), "solver": dfx.Heun(), "dt0": 0.1, "y0": 1.0, "delay": 0.71}

    @jax.jit
    def final(strictly):
        history = lambda u: jnp.where(behind(u, -0.45, strictly), 1.0, 0.0)
        return solve(t0=0.1, t1=0.3, history=history, jump_ts=jnp.array([-0.45]), **options).ys[0]

    np.testing.assert_allclose([final(True), final(False)], 0.96, atol=1e-14)


@pytest.mark.parametrize(
    ("compare", "adjoint", "solver"),
    [
        (operator.gt, lx.ContinuousAdjoint(), dfx.Tsit5()),
        (operator.ge, lx.DiscreteAdjoint(), dfx.Kvaerno5()),
        (operator.gt, lx.DiscreteAdjoint(), dfx.Kvaerno4()),
        (operator.gt, lx.DiscreteAdjoint(), dfx.Dopri5()),
    ],
    ids=["continuous", "Kvaerno5", "Kvaerno4", "Dopri5"],
)
def test_a_jump_of_the_field(compare, adjoint, solver):
    """y' = H(t - s) cos t - y(t - 1): y(2) = -1/2 + sin 2 - sin s - ∫ …, dy/ds = -cos s + (1 - s) cos s = -s cos s."""
    field = lambda t, y, z, s: jnp.where(compare(t, s), jnp.cos(t), 0.0) - z
    options = {"adjoint": adjoint, "solver": solver, "saveat": dfx.SaveAt(ts=jnp.array([2.0]))}
    final = lambda s: solve(field, args=s, jump_ts=s[None], **options).ys[0]
    y, slope = jax.jit(jax.value_and_grad(final))(jnp.array(0.7))
    inside = np.cos(0.7) - np.cos(1) - 0.3 * np.sin(0.7)
    np.testing.assert_allclose(y, -0.5 + np.sin(2) - np.sin(0.7) - inside, atol=2e-7)
    np.testing.assert_allclose(slope, -0.7 * np.cos(0.7), atol=2e-6)


def test_many_declared_jumps():
    """As many as one likes: none is dropped."""
    n = 4200
    times, values = np.linspace(-0.999, -0.001, n), np.sin(40 * np.linspace(-1, 0, n + 1))
    history = lambda t: jnp.asarray(values)[jnp.searchsorted(jnp.asarray(times), t, side="right")]
    options = {"jump_ts": jnp.asarray(times), "max_steps": 10_000, "y0": 1.0}
    y = solve(
        t1=1.0, dt0=0.1, history=history, solver=dfx.Euler(), stepsize_controller=dfx.ConstantStepSize(), **options
    ).ys[0]
    np.testing.assert_allclose(y, 1 - np.sum(np.diff([-1, *times, 0]) * values), atol=1e-11)


def test_continuing_after_the_end_is_refused():
    first = solve(saveat=dfx.SaveAt(dense=True))
    with pytest.raises(ValueError, match=r"t0 = 3\.0, expected at most 2\.0, where the solution to be continued ends"):
        solve(t0=3.0, t1=4.0, history=first)
    late = jax.jit(lambda t0: solve(t0=t0, t1=4.0, history=first, throw=False).result)(3.0)
    assert late == lx.RESULTS.bad_history


def test_nothing_is_known_after_the_end():
    dense = solve(saveat=dfx.SaveAt(dense=True))
    assert jnp.isnan(dense.evaluate(2.1)) and jnp.isnan(dense.derivative(jnp.array(50.0)))
    np.testing.assert_allclose([dense.evaluate(2.0), dense.evaluate(2 * (1 + 2e-16))], -0.5, atol=1e-9)
    np.testing.assert_allclose(dense.derivative(2.0), 0.0, atol=1e-8)


def test_the_start_of_a_run_that_is_continued():
    """y = 1 on [s, s + 1], y(2) = 1 - (2 - s - 1): its derivative with respect to s is 1."""
    dense = dfx.SaveAt(dense=True)

    def final(s):
        first = solve(t0=s, t1=1.0, history=0.0, y0=1.0, saveat=dense)
        second = solve(t0=1.0, t1=1.3, history=first, saveat=dense)
        return solve(t0=1.3, t1=2.0, history=second).ys[0]

    y, slope = jax.jit(jax.value_and_grad(final))(0.5)
    np.testing.assert_allclose([y, slope], [0.5, 1.0], atol=1e-8)


def test_the_last_of_ts_is_t1():
    """y(2.5) depends on when it is observed, y'(2.5) = 0.375, and not on how much further the solve goes."""
    final = lambda t, t1: solve(t1=t1, saveat=dfx.SaveAt(ts=jnp.stack([t / 2, t]))).ys[1]
    slopes = jax.jit(jax.grad(final, (0, 1)))
    np.testing.assert_allclose(slopes(2.5, 2.5), [0.375, 0.0], atol=1e-7)
    np.testing.assert_allclose(slopes(2.5, 2.6), [0.375, 0.0], atol=1e-7)


@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Kvaerno5()], ids=["explicit", "implicit"])
def test_the_history_is_never_asked_after_t0(solver):
    """Where it may not be defined, as here; neither by the choice of the first step nor beside a shorter delay."""
    history = lambda t: 1 + (-t) ** 1.5
    field = lambda t, y, z, args: -0.01 * z[0] - args * z[1]
    options = {"t1": 0.05, "history": history, "solver": solver, "max_steps": 1024}
    final = lambda a, delay: solve(field, args=a, delay=(delay, 1.0), **options).ys[0]
    y, slopes = jax.jit(jax.value_and_grad(final, (0, 1)))(0.1, 1e-2)
    # To first order in what changes within so short a time: y' = -0.01 - 0.1 φ(t - 1).
    np.testing.assert_allclose(y, 1 - 0.05 * 0.01 - 0.1 * 0.05 * 2 + 0.1 * 1.5 * 0.05**2 / 2, atol=2e-5)
    assert jnp.all(jnp.isfinite(jnp.stack(slopes)))


def test_nan_of_the_history_is_named():
    """Also if only the trial step that selects the first one meets it."""
    history = lambda t: jnp.where(t < -0.5, 1.0, jnp.nan)
    sol = solve(history=history, y0=1.0, throw=False)
    assert sol.result == lx.RESULTS.field_nonfinite and 0.4 < sol.stats["t_reached"] <= 0.5 + 1e-6


AT_RUN_TIME = {
    "state": (lambda x: solve(y0=1 + x, throw=False), jnp.nan, lx.RESULTS.bad_state),
    "first step": (lambda x: solve(dt0=0.1 + x, throw=False), -1.0, lx.RESULTS.bad_dt0),
    "first step NaN": (
        lambda x: solve(dt0=0.1 + x, throw=False, stepsize_controller=dfx.ConstantStepSize()), jnp.nan, lx.RESULTS.bad_dt0
    ),
    "jump": (lambda x: solve(jump_ts=x[None], throw=False), jnp.nan, lx.RESULTS.bad_jumps),
    "late": (lambda x: solve(t0=x, t1=x + 400.0, delay=40.0, throw=False), 1e16, lx.RESULTS.bad_precision),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_bad_values_at_run_time(name):
    run, value, expected = AT_RUN_TIME[name]
    assert jax.jit(lambda x: run(x).result)(jnp.array(value)) == expected


def test_a_first_step_below_the_spacing_of_time():
    sol = solve(t0=1.0, t1=2.0, dt0=1e-30)
    np.testing.assert_allclose(sol.ys[0], 0.0, atol=1e-12)
    assert sol.stats["num_steps"] < 40


FIXED = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.1}
ADJOINTS = {
    "discrete": {"adjoint": lx.DiscreteAdjoint()},
    "fixed steps, stages kept": {"adjoint": lx.DiscreteAdjoint(keep_stages=True)} | FIXED,
    "continuous": {"adjoint": lx.ContinuousAdjoint(max_steps=64)},
    "piecewise": {"adjoint": lx.PiecewiseAdjoint(num_intervals=2)},
    "forward": {"adjoint": lx.ForwardMode()},
}
GOOD = {"a": 1.0, "delay": 1.0, "shaking": 0.0, "broken": 9.0}
FAILING = {"too few steps": {"shaking": 1.0}, "a negative delay": {"delay": -1.0}, "NaN": {"broken": 0.55}}


@pytest.mark.parametrize("name", ADJOINTS)
def test_a_failed_solve_has_no_gradient(name):
    """y(1.8) = 1 - 1.8 a + a² (1.8 - τ)²/2. If it fails: NaN, also where nothing was reached that was to be saved, and zero
    for a loss that leaves failed solves out; never an error of the backward pass."""
    options = {"max_steps": 64, "throw": False, "saveat": dfx.SaveAt(ts=jnp.array([1.8]))} | ADJOINTS[name]

    def loss(x, rest, left_out):
        shaken = lambda t, p: p["shaking"] * jnp.sin(5000 * t) + jnp.where(t > p["broken"], jnp.nan, 0.0)
        field = lambda t, y, z, p: -p["a"] * z + shaken(t, p)
        sol = solve(field, t1=1.9, args=rest | x, delay=x["delay"], **options)
        failed = sol.result != lx.RESULTS.successful
        return jnp.where(failed & left_out, 0.0, sol.ys[0]), (failed, sol.ys[0])

    derivative = jax.jit((jax.jacfwd if name == "forward" else jax.grad)(loss, has_aux=True))
    varied = lambda values: {name: values[name] for name in ("a", "delay")}
    slopes = lambda values, left_out: derivative(varied(values), values, left_out)
    found, (failed, _) = slopes(GOOD, False)
    assert not failed
    np.testing.assert_allclose([found["a"], found["delay"]], [-1.16, -0.8], atol=1e-7)
    for cause, values in FAILING.items():
        if cause == "too few steps" and "fixed" in name:
            continue
        found, (failed, y) = slopes(GOOD | values, False)
        assert failed and not jnp.isfinite(y), cause
        assert jnp.isnan(found["a"]) and jnp.isnan(found["delay"]), cause
        found, _ = slopes(GOOD | values, True)
        assert found["a"] == found["delay"] == 0, cause


def test_the_piecewise_adjoint_names_the_cause():
    """As the other solves do, for values only known at run time."""
    run = lambda y0, delay: solve(history=1.0, y0=y0, delay=delay, throw=False, adjoint=lx.PiecewiseAdjoint(num_intervals=2))
    results = jax.jit(lambda y0, delay: run(y0, delay).result)
    assert results(1.0, 1.0) == lx.RESULTS.successful
    assert results(1.0, -1.0) == lx.RESULTS.bad_delay
    assert results(jnp.nan, 1.0) == lx.RESULTS.bad_state
    assert results(1.0, 0.5) == lx.RESULTS.bad_intervals


def test_an_event_condition_that_is_nan():
    """Whether the event happened nobody knows: at t0, after a step, and also if the condition is a number again later."""
    event = dfx.Event(lambda t, y, when, **kwargs: jnp.where((t >= when) & (t < when + 0.5), jnp.nan, y))
    sols = jax.jit(lambda when: solve(args=when, event=event, throw=False, **FIXED))
    for when in (0.0, 0.35):
        sol = sols(when)
        assert sol.result == lx.RESULTS.bad_event
        np.testing.assert_allclose(sol.stats["t_reached"], when, atol=0.1)
    sol = sols(5.0)
    assert sol.result == lx.RESULTS.event_occurred and 1.0 <= sol.ts[0] <= 1.1 + 1e-9


def test_an_event_that_starts_at_zero():
    """y = cos t: the next time that y = 1 is crossed downwards never comes, and sin t = 0 is met at π."""
    delay = jnp.pi / 2
    options = {"history": jnp.cos, "delay": delay, "t1": 5.0, "max_steps": 256}
    root = optx.Newton(1e-10, 1e-10)
    event = dfx.Event(lambda t, y, of_time, **kwargs: jnp.where(of_time, jnp.sin(t), y - 1), root)
    sols = jax.jit(lambda of_time: solve(args=of_time, event=event, throw=False, **options))
    np.testing.assert_allclose(sols(True).ts[0], np.pi, atol=1e-9)
    assert sols(False).result == lx.RESULTS.successful


def test_an_event_where_the_step_ends_level():
    """y = 1 - t, then y' = 0 at t = 2, where the step ends in which y = ε - 0 is found: Newton's method needs a guess."""
    event = dfx.Event(lambda t, y, args, **kwargs: y + 1e-15, optx.Newton(1e-10, 1e-10))
    np.testing.assert_allclose(solve(event=event).ts[0], 1.0, atol=1e-9)


def test_rank_promotion_may_be_forbidden():
    with jax.numpy_rank_promotion("raise"):
        final = lambda y0, tau: jnp.sum(
            solve(history=y0, y0=y0 + 1, delay=(tau, 0.7), field=lambda t, y, z, a: -z[0] * z[1]).ys
        )
        slopes = jax.jit(jax.grad(final, (0, 1)))(jnp.array([[1.0, 2.0]]), 1.0)
        assert all(jnp.all(jnp.isfinite(slope)) for slope in slopes)


def test_a_costate_is_compiled_once(caplog):
    costate = lambda sol, gradient: lx.ContinuousAdjoint(dfx.Tsit5(), TIGHT).costate(sol, jnp.array([2.0]), gradient)(1.0)
    sol = solve(saveat=dfx.SaveAt(dense=True), max_steps=78)  # a shape that no other test has compiled
    costate(sol, jnp.array([1.0]))
    with jax.log_compiles():
        costate(sol, jnp.array([3.0]))
    assert not [record for record in caplog.records if "Finished XLA compilation" in record.message]


@pytest.mark.parametrize("adjoint", [lx.DiscreteAdjoint(), lx.ForwardMode()], ids=["reverse", "forward"])
def test_a_jump_a_few_floats_beside_an_echo(adjoint):
    """y' = H(t - s) - y(t - τ), y = 0 before t0, y(t0) = 1: y(t1) = 1 - s + t0 + τ, also where s = t0 + τ but for
    rounding. There is no room between the two for a step that sees the field on its right side."""

    def final(x, strict):
        s, tau, t0 = x
        field = lambda t, y, z, args: jnp.where(behind(t, s, strict), 1.0, 0.0) - z
        options = {"y0": 1.0, "jump_ts": s[None], "adjoint": adjoint, "max_steps": 64}
        return solve(field, t0=t0, t1=t0 + 1.5 * tau, history=0.0, delay=tau, **options).ys[0]

    slopes = jax.jit((jax.grad if isinstance(adjoint, lx.DiscreteAdjoint) else jax.jacfwd)(final))
    t0, tau = 0.1, 1.4646243335118974
    for floats in (-2, -1, 0, 1, 2):
        s = t0 + tau + floats * np.spacing(t0 + tau)
        for strict in (True, False):
            found = slopes((jnp.array(s), jnp.array(tau), jnp.array(t0)), strict)
            np.testing.assert_allclose(jnp.stack(found), [-1.0, 1.0, 1.0], atol=1e-7, err_msg=f"{floats} {strict}")


def test_echoes_that_rounding_puts_in_another_order():
    """The field jumps at s = t0 + τ but for rounding, so later s + kτ and t0 + (k + 1) τ are breakpoints that round either
    way: derivatives do not depend on where on the axis of time, and how, this happens."""
    field = lambda t, y, z, s: jnp.where(t >= s, 1.0, 0.0) - jnp.sin(z) - 0.4 * y

    def final(s, tau, t0, t1):
        options = {"jump_ts": s[None], "stepsize_controller": dfx.ConstantStepSize(), "max_steps": 64}
        return solve(field, t0=t0, t1=t1, dt0=0.2 * tau, delay=tau, args=s, **options).ys[0]

    compiled, tau = jax.jit(jax.grad(final, (0, 1, 2))), 1 / 3
    slopes = lambda *times: compiled(*map(np.float64, times))
    expected = slopes(tau, tau, 0.0, 4.6 * tau)
    for t0 in (0.1, 1e3, 1e6):
        for floats in (-1, 0, 1, 2):
            s = t0 + tau + floats * np.spacing(t0 + tau)
            found = slopes(s, tau, t0, t0 + 4.6 * tau)
            np.testing.assert_allclose(found, expected, atol=1e-7, err_msg=f"{t0} {floats}")


def test_equal_delays_over_a_long_time():
    """y' = -2 y(t - τ₁) - 3 y(t - τ₂), y = 0 before 0, y(0) = 1: equal delays make steps of length zero, whose rows have no
    slope and must not be looked up."""
    field = lambda t, y, z, args: -2 * z[0] - 3 * z[1]
    final = lambda delays: solve(field, t1=0.75, history=0.0, y0=1.0, delay=tuple(delays)).ys[0]
    series = lambda tau: sum((-5.0) ** k * jnp.maximum(0.75 - k * tau, 0.0) ** k / math.factorial(k) for k in range(9))
    slope = jax.grad(series)(0.1)
    found = jax.jit(jax.grad(final))(jnp.array([0.1, 0.1]))
    np.testing.assert_allclose(found, [0.4 * slope, 0.6 * slope], atol=5e-7)


def test_equal_delays_beside_others():
    """Two pairs of equal delays, nearly equal to each other: in reverse and forward mode what differences say, before and
    behind the seventh echo of a jump of the history, where fourteen steps of length zero or nearly so are looked up."""
    weights = jnp.array([-1.0, -0.6, 0.7, 0.4])

    def final(p, t1, adjoint):
        field, past = lambda t, y, z, args: weights @ jnp.stack(z), lambda t: jnp.where(t >= p[4], 1 + 0.3 * t, 0.4)
        options = {"delay": tuple(p[:4]), "y0": 0.7, "jump_ts": p[4:], "adjoint": adjoint, "max_steps": 1024}
        return solve(field, t1=t1, history=past, **options).ys[0]

    p = jnp.array([0.507 * (1 + 1e-5), 0.507, 0.507, 0.507 * (1 + 1e-5), -0.3525])
    backwards = jax.jit(jax.value_and_grad(lambda p, t1: final(p, t1, lx.DiscreteAdjoint())))
    forwards = jax.jit(jax.jacfwd(lambda p, t1: final(p, t1, lx.ForwardMode())))
    moved = 1e-6 * jnp.eye(5)
    for t1 in (0.72, 3.25):
        differences = [(backwards(p + e, t1)[0] - backwards(p - e, t1)[0]) / 2e-6 for e in moved]
        np.testing.assert_allclose(backwards(p, t1)[1], differences, atol=1e-7)
        np.testing.assert_allclose(forwards(p, t1), differences, atol=1e-7)


@pytest.mark.parametrize("root", [optx.Newton(1e-9, 1e-9), optx.Bisection(1e-9, 1e-9)], ids=["Newton", "Bisection"])
def test_events_on_the_edges_of_steps(root):
    """True from the start, true at the end of a step, zero exactly at the end of one: found, whichever way."""
    event = dfx.Event(lambda t, y, of_time, **kwargs: jnp.where(of_time, t > 0.9, y > 0.5), root)
    sols = jax.jit(lambda of_time: solve(args=of_time, event=event))
    true = sols(False)
    np.testing.assert_allclose([true.ts[0], true.ys[0]], [0.0, 1.0])
    assert 0.9 < sols(True).ts[0] <= 1.0
    breakpoint = solve(event=dfx.Event(lambda t, y, args, **kwargs: t - 1, root))
    np.testing.assert_allclose(breakpoint.ts[0], 1.0, atol=1e-9)


def test_an_event_at_a_breakpoint_moves_with_it():
    """y' = -y(t - τ) from 1 stops at the end of a step, which is the breakpoint τ: (τ, 1 - τ)."""

    def end(tau):
        event = dfx.Event(lambda t, y, args, **kwargs: y < 0.31)
        fixed = {"solver": dfx.Heun(), "dt0": 0.1, "stepsize_controller": dfx.ConstantStepSize(), "max_steps": 32}
        stopped = solve(delay=tau, event=event, **fixed)
        found = jnp.stack([stopped.ts[0], stopped.ys[0]])
        return found, found

    slopes, values = jax.jit(jax.jacrev(end, has_aux=True))(0.7)
    np.testing.assert_allclose(values, [0.7, 0.3], atol=1e-14)
    np.testing.assert_allclose(slopes, [1.0, -1.0], atol=1e-14)


def test_a_located_event_raises_nothing_that_was_not_asked_for():
    """Of a solve that fails, of a cotangent that is NaN, and of a condition without a slope: NaN, and no error."""

    def end(a, adjoint, level=False):
        condition = lambda t, y, args, **kwargs: jnp.where(level, jnp.where(y > 0.5, 1.0, -1.0), y - 0.5)
        event = dfx.Event(condition, optx.Bisection(1e-9, 1e-9))
        fixed = {"solver": dfx.Heun(), "dt0": 0.1, "stepsize_controller": dfx.ConstantStepSize()}
        field = lambda t, y, z, args: -args * jnp.where(args > 5, jnp.nan, z)
        return solve(field, args=a, event=event, throw=False, max_steps=32, adjoint=adjoint, **fixed).ts[0]

    weighted = lambda a, weight, level: weight * end(a, lx.DiscreteAdjoint(), level)
    rates, weights = jnp.array([2.0, 9.0, 2.0, 2.0]), jnp.array([1.0, 1.0, jnp.nan, 1.0])
    levels = jnp.array([False, False, False, True])
    times, slopes = jax.jit(jax.vmap(jax.value_and_grad(weighted)))(rates, weights, levels)
    np.testing.assert_allclose(times, [0.25, 0.0, np.nan, 0.25], atol=1e-8)
    np.testing.assert_allclose(slopes, [-0.125, np.nan, np.nan, np.nan], atol=1e-8)
    forwards = jax.jit(jax.vmap(jax.jacfwd(lambda a: end(a, lx.ForwardMode()))))
    np.testing.assert_allclose(forwards(rates[:2]), [-0.125, np.nan], atol=1e-8)
