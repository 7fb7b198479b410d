"""Impulses: y⁺ = fn(t, y⁻, args) at known times, against exact solutions, chains of solves and finite differences."""

import inspect
import math

import diffrax as dfx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import lagrax as lx

INF = math.inf
DISCRETE, TSIT5, AT_T1 = lx.DiscreteAdjoint(), dfx.Tsit5(), dfx.SaveAt(t1=True)


def fundamental(t):
    """X' = -X(t - 1) with X(0) = 1 and X = 0 before: the response to a kick of size 1."""
    return sum((-1) ** k * (t - k) ** k / math.factorial(k) for k in range(math.floor(t) + 1)) if t >= 0 else 0.0


def exact(t, ts, sizes):
    """y' = -y(t - 1) with y = 1 before 0, and kicks."""
    return fundamental(t + 1) + sum(size * fundamental(t - time) for time, size in zip(ts, sizes, strict=True))


def kicked(ts, sizes, t1=3.2, delay=1.0, adjoint=DISCRETE, saveat=AT_T1, **more):
    term = lx.DelayTerm(lambda t, y, z, args: -z, delay)
    impulses = lx.Impulses(ts, lambda t, y, size, args: y + size, sizes)
    controller = dfx.PIDController(rtol=1e-10, atol=1e-10)
    more = dict(saveat=saveat, stepsize_controller=controller, adjoint=adjoint, impulses=impulses, max_steps=256) | more
    # As users call it: here in the tests types are checked before.
    return inspect.unwrap(lx.ddesolve)(term, dfx.Tsit5(), 0.0, t1, None, 1.0, **more)


SCHEDULES = (
    ([0.5], [0.3]),
    ([1.0], [0.3]),  # on a breakpoint
    ([0.5, 0.5], [0.3, -0.7]),  # twice at one time, and their echoes
    ([0.0, 0.0, 1.0], [0.3, 0.2, -0.4]),  # at t0
    ([1.0, 1.0, 2.0], [0.3, 0.2, 0.9]),
)


@pytest.mark.parametrize("delay", [1.0, lx.Lag(lambda t, y, args: 1.0 + 0 * t, overlap=True)], ids=["planned", "staged"])
def test_exact_values_and_gradients_in_size_and_time(delay):
    padded = lambda x, fill: jnp.array(x + [fill] * (3 - len(x)))
    final = lambda adjoint: lambda ts, sizes: kicked(ts, sizes, delay=delay, adjoint=adjoint).ys[0]
    backwards = jax.jit(jax.value_and_grad(final(lx.DiscreteAdjoint()), (0, 1)))
    forwards = jax.jit(jax.jacfwd(final(lx.ForwardMode()), (0, 1)))
    for ts, sizes in SCHEDULES:
        given = padded(ts, INF), padded(sizes, 0.1)
        value, (ts_bar, sizes_bar) = backwards(*given)
        assert abs(value - exact(3.2, ts, sizes)) < 1e-10
        # ∂X(t - s)/∂s = X(t - s - 1)
        expected = [size * fundamental(2.2 - time) for time, size in zip(ts, sizes, strict=True)]
        np.testing.assert_allclose(ts_bar, padded(expected, 0.0), atol=1e-8)
        np.testing.assert_allclose(sizes_bar, padded([fundamental(3.2 - time) for time in ts], 0.0), atol=1e-8)
        for a, b in zip(forwards(*given), (ts_bar, sizes_bar), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)


def chained(ts, factor, delay, past):
    """The same by solves that continue each other, each from a state that was kicked by hand."""
    term = lx.DelayTerm(field, delay)
    history, y0, start = (lambda t: past * jnp.cos(t)), None, 0.0
    for end in (*ts, 3.0):
        controller = dfx.PIDController(rtol=1e-9, atol=1e-9)
        options = dict(saveat=dfx.SaveAt(t1=True, dense=True), stepsize_controller=controller, max_steps=256)
        history = lx.ddesolve(term, dfx.Tsit5(), start, end, None, history, y0=y0, **options)
        y0, start = history.ys[0] * factor + end, end
    return history.ys[0]


def field(t, y, z, args):
    return 0.5 * y - z["a"] * jnp.tanh(z["b"])


def at_once(ts, factor, delay, past, solver=TSIT5, tol=1e-9):
    term = lx.DelayTerm(field, delay)
    impulses = lx.Impulses(ts, lambda t, y, args: factor * y + t)
    options = dict(stepsize_controller=dfx.PIDController(rtol=tol, atol=tol), max_steps=512, impulses=impulses)
    return lx.ddesolve(term, solver, 0.0, 3.0, None, lambda t: past * jnp.cos(t), **options).ys[0]


INPUTS = (jnp.array([0.4, 1.7]), jnp.array(1.3), jnp.array([0.7, 1.0]), jnp.array(0.8))
"""Times of kicks, their factor, delays, size of the past."""


@pytest.mark.slow
def test_gradients_equal_those_of_solves_that_continue_each_other():
    delay = lambda taus: {"a": taus[0], "b": taus[1]}
    value, bars = jax.jit(jax.value_and_grad(lambda ts, f, tau, p: at_once(ts, f, delay(tau), p), (0, 1, 2, 3)))(*INPUTS)
    want, wanted = jax.jit(jax.value_and_grad(lambda ts, f, tau, p: chained(ts, f, delay(tau), p), (0, 1, 2, 3)))(*INPUTS)
    np.testing.assert_allclose(value, want, rtol=1e-7)
    for bar, expected in zip(bars, wanted, strict=True):
        np.testing.assert_allclose(bar, expected, rtol=2e-6, atol=1e-7)


def test_gradients_with_a_delay_that_depends_on_the_state_that_is_kicked():
    flat, structure = jax.flatten_util.ravel_pytree(INPUTS)

    def final(flat):
        ts, factor, taus, past = structure(flat)
        delay = {"a": lambda t, y, args: taus[0] + 0.1 * jnp.tanh(y), "b": taus[1]}
        return at_once(ts, factor, delay, past, tol=1e-11)

    value_and_gradient = jax.jit(jax.value_and_grad(final))
    step = 1e-4 * np.eye(len(flat))
    differences = [(value_and_gradient(flat + h)[0] - value_and_gradient(flat - h)[0]) / 2e-4 for h in step]
    np.testing.assert_allclose(value_and_gradient(flat)[1], differences, atol=1e-6)


def test_an_implicit_solver_is_kicked_too():
    delay = {"a": 0.7, "b": 1.0}
    ts = jnp.array([0.4, 1.7, INF])
    gradient = lambda solver, tol: jax.value_and_grad(lambda ts: at_once(ts, 1.3, delay, 0.8, solver, tol))
    grads = jax.jit(gradient(dfx.Kvaerno5(), 1e-8))(ts), jax.jit(gradient(TSIT5, 1e-9))(ts)
    np.testing.assert_allclose(grads[0][0], grads[1][0], rtol=1e-6)
    np.testing.assert_allclose(grads[0][1], grads[1][1], rtol=1e-5, atol=1e-8)


def test_lanes_have_schedules_of_their_own():
    ts = jnp.array([[0.5, 0.8, INF], [1.0, 1.0, 2.5], [INF, INF, INF]])
    sizes = jnp.array([[0.3, -0.2, 0.0], [0.1, 0.2, 0.3], [1.0, 1.0, 1.0]])
    run = jax.value_and_grad(lambda ts, sizes: kicked(ts, sizes).ys[0], (0, 1))
    values, bars = jax.jit(jax.vmap(run))(ts, sizes)
    for lane in range(3):
        finite = int(jnp.sum(jnp.isfinite(ts[lane])))
        assert abs(values[lane] - exact(3.2, ts[lane, :finite].tolist(), sizes[lane, :finite].tolist())) < 1e-10
        _, single = jax.jit(run)(ts[lane], sizes[lane])
        np.testing.assert_allclose(bars[0][lane], single[0], atol=1e-12)
        np.testing.assert_allclose(bars[1][lane], single[1], atol=1e-12)


@pytest.mark.parametrize("delay", [1.0, lambda t, y, args: 1.0 + 0 * t], ids=["planned", "staged"])
def test_the_value_at_a_kick_is_the_one_behind_it(delay):
    subs = [
        dfx.SubSaveAt(t0=True, ts=jnp.array([0.0, 0.25, 0.5, 0.75, 2.0])),
        dfx.SubSaveAt(steps=True),
    ]
    saveat = dfx.SaveAt(subs=subs, dense=True)
    ts, sizes = [0.0, 0.5, 0.5], [0.1, 0.3, 0.4]
    solution = kicked(jnp.array(ts), jnp.array(sizes), t1=2.0, delay=delay, saveat=saveat)
    saved_ts, ys = solution.ts[0], solution.ys[0]
    sides = lambda t, left: [time for time in ts if time < t or (time == t and not left)]
    value = lambda t, left: exact(t, sides(t, left), sizes[: len(sides(t, left))])
    np.testing.assert_allclose(ys, [value(float(t), False) for t in saved_ts], atol=1e-10)
    for t in (0.25, 0.5, 0.75, 2.0):
        assert abs(solution.evaluate(t) - value(t, True)) < 1e-10
        assert abs(solution.evaluate(t, left=False) - value(t, False)) < 1e-10
    # A step that ends at a kick ends behind it, and so does one of length zero between two kicks.
    mesh, states = solution.ts[1], solution.ys[1]
    at_kick = np.asarray(states)[np.asarray(mesh) == 0.5]
    np.testing.assert_allclose(at_kick, [value(0.5, True) + 0.3, value(0.5, True) + 0.7], atol=1e-10)


@pytest.mark.parametrize("delay", [1.0, lambda t, y, args: 1.0 + 0 * t], ids=["planned", "staged"])
def test_events_before_and_by_a_kick(delay):
    def final(level, size):
        event = dfx.Event(lambda t, y, args, **_: y - level, optx.Newton(1e-10, 1e-10))
        saveat = dfx.SaveAt(subs=[dfx.SubSaveAt(t1=True), dfx.SubSaveAt(ts=jnp.array([0.2, 0.5, 0.8]))])
        solution = kicked(jnp.array([0.5]), size[None], t1=0.9, delay=delay, event=event, saveat=saveat)
        return solution.ys[0][0] * 10 + solution.ts[0][0], (solution.ts, solution.ys)

    run = jax.jit(jax.grad(final, (0, 1), has_aux=True))
    # y = 1 - t crosses 0.6 at 0.4, before the kick.
    (level_bar, size_bar), (ts, ys) = run(jnp.array(0.6), jnp.array(1.0))
    np.testing.assert_allclose([ts[0][0], ys[0][0]], [0.4, 0.6], atol=1e-9)
    np.testing.assert_allclose([level_bar, size_bar], [10 - 1, 0], atol=1e-8)
    # The kick carries it from 0.5 over 1.2, where the solve ends behind it.
    (level_bar, size_bar), (ts, ys) = run(jnp.array(1.2), jnp.array(1.0))
    np.testing.assert_allclose([ts[0][0], ys[0][0]], [0.5, 1.5], atol=1e-9)
    np.testing.assert_allclose([level_bar, size_bar], [0, 10], atol=1e-8)
    np.testing.assert_allclose(ys[1], [0.8, 1.5, INF], atol=1e-9)
    # Without a kick, at one that is none.
    (level_bar, size_bar), (ts, ys) = run(jnp.array(0.3), jnp.array(0.0))
    np.testing.assert_allclose([ts[0][0], ys[0][0]], [0.7, 0.3], atol=1e-9)
    np.testing.assert_allclose([level_bar, size_bar], [10 - 1, 1], atol=1e-8)


def test_a_solution_that_was_kicked_is_continued():
    first, later = [0.3, 0.5, 0.9], [1.1]
    sizes = [0.3, -0.2, 0.4, 0.7]

    @jax.jit
    @jax.value_and_grad
    def final(ts):
        start = kicked(ts[:3], jnp.array(sizes[:3]), t1=1.1, saveat=dfx.SaveAt(dense=True))
        term = lx.DelayTerm(lambda t, y, z, args: -z, 1.0)
        controller = dfx.PIDController(rtol=1e-10, atol=1e-10)
        impulses = lx.Impulses(ts[3:], lambda t, y, args: y + sizes[3])
        return lx.ddesolve(term, dfx.Tsit5(), 1.1, 3.2, None, start, stepsize_controller=controller, impulses=impulses).ys[0]

    value, bar = final(jnp.array(first + later))
    assert abs(value - exact(3.2, first + later, sizes)) < 1e-9
    expected = [size * fundamental(2.2 - time) for time, size in zip(first + later, sizes, strict=True)]
    np.testing.assert_allclose(bar, expected, atol=1e-8)


def test_a_kick_may_move_what_a_delay_looks_at():
    """α = y - 2: the kick at 1 makes the lag jump from one piece of the past to another."""
    term = lx.DelayTerm(lambda t, y, z, args: z, lx.At(lambda t, y, args: y - 2.0))

    def final(time, size):
        impulses = lx.Impulses(time[None], lambda t, y, args: y + size)
        options = dict(stepsize_controller=dfx.PIDController(rtol=1e-10, atol=1e-10), impulses=impulses)
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.5, None, lambda t: 1.0 + 0 * t, **options).ys[0]

    # y = 1 + t up to s; then y' = y(y - 2) = y - 1 while 0 ≤ y - 2 ≤ s: y = 1 + (s + size) e^(t - s).
    time, size = 1.0, 0.2
    value, (time_bar, size_bar) = jax.jit(jax.value_and_grad(final, (0, 1)))(jnp.array(time), jnp.array(size))
    growth = math.exp(0.5)
    np.testing.assert_allclose(value, 1 + (time + size) * growth, rtol=1e-9)
    np.testing.assert_allclose(time_bar, growth - (time + size) * growth, atol=1e-8)
    np.testing.assert_allclose(size_bar, growth, atol=1e-8)


@pytest.mark.parametrize(
    ("impulses", "words"),
    [
        (lx.Impulses([0.5, 0.2], lambda t, y, args: y), "not sorted"),
        (lx.Impulses([0.5, math.nan], lambda t, y, args: y), "not sorted"),
        (
            lx.Impulses([-0.5, 0.2], lambda t, y, args: y),
            "runs from -0.5 to 0.2, expected t0 = 0.0 ≤ t < t1 = 3.2",
        ),
        (lx.Impulses([0.5, 3.2], lambda t, y, args: y), "a kick at t1 is the first"),
        (lx.Impulses(0.5, lambda t, y, args: y), "a list of real times"),
        (lx.Impulses([0.5], 1.0), "impulses.fn is 1.0, expected a function"),
        (lx.Impulses([0.5], lambda t, y: y), "impulses.fn is a function of"),
        (lx.Impulses([0.5], lambda t, y, args: (y, y)), "what impulses.fn returned has structure"),
        (lx.Impulses([0.5], lambda t, y, args: jnp.ones(2)), "what impulses.fn returned has shape"),
        (lx.Impulses([0.5], lambda t, y, size, args: y, jnp.ones(2)), "impulses.values has shape"),
        (3.0, "expected lagrax.Impulses"),
    ],
)
def test_mistakes_are_told_in_one_sentence(impulses, words):
    with pytest.raises(ValueError) as caught:
        kicked(None, None, impulses=impulses)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("adjoint", [lx.ContinuousAdjoint(), lx.PiecewiseAdjoint()])
def test_adjoints_that_cannot_serve_impulses_refuse_them(adjoint):
    with pytest.raises(ValueError, match=r"got impulses with .*Adjoint, expected a state that is not kicked"):
        kicked(jnp.array([0.5]), jnp.array([1.0]), adjoint=adjoint)


def test_an_array_of_delays_refuses_impulses():
    term = lx.DelayTerm(lambda t, y, z, args: -jnp.sum(z, axis=1), lx.Each(jnp.full((20, 20), 0.5)))
    with pytest.raises(ValueError, match=r"got impulses with a large array of delays \(Each\)"):
        lx.ddesolve(term, TSIT5, 0.0, 1.0, None, jnp.ones(20), impulses=lx.Impulses([0.5], lambda t, y, args: y))


def test_what_only_shows_at_run_time_is_a_result():
    run = jax.jit(lambda ts, size: kicked(ts, jnp.full(2, size), throw=False).result)
    for ts in ([0.5, 0.2], [-0.1, 0.2], [0.5, 3.2], [0.5, math.nan], [INF, 0.5]):
        assert run(jnp.array(ts), 1.0) == lx.RESULTS.bad_impulses, ts
    assert run(jnp.array([0.5, INF]), 1.0) == lx.RESULTS.successful
    assert run(jnp.array([0.5, INF]), jnp.nan) == lx.RESULTS.bad_kick
