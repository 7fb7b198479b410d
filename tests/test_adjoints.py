"""The paper's two gradients against the discrete one, against exact values, and against what the costate means."""

import functools

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx
from lagrax._adjoint._count import counting

TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-10)
DISCRETE, CONTINUOUS, PIECEWISE = lx.DiscreteAdjoint(), lx.ContinuousAdjoint(), lx.PiecewiseAdjoint()


def assert_close(found, expected, rtol=1e-5):
    """Relative to the largest entry of each leaf."""
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=rtol * np.max(np.abs(want)) + 1e-14)


def solve(field, delays, t1, history, args, *, ts=None, adjoint=DISCRETE, **options):
    saveat = dfx.SaveAt(t1=True) if ts is None else dfx.SaveAt(ts=ts)
    term = lx.DelayTerm(field, delays)
    options = {"stepsize_controller": TIGHT, "saveat": saveat} | options
    return lx.ddesolve(term, dfx.Tsit5(), 0.0, t1, None, history, args, adjoint=adjoint, **options)


EXACT = {3: (-1 / 6, 1 / 2, -1.0), 5: (19 / 120, 1 / 8, 7 / 6)}


@functools.cache
def decay(adjoint):
    """The end of y' = -a y(t-τ) + b y², with its derivatives in a and τ, as one program for all tests with this adjoint."""

    def end(a, tau, b, t1, past, y0):
        field = lambda t, y, z, args: -args[0] * z + args[1] * y**2
        return solve(field, tau, t1, past, (a, b), y0=y0, adjoint=adjoint).ys[0]

    compiled = jax.jit(jax.value_and_grad(end, argnums=(0, 1)))

    def found(t1, past, y0, b=0.0):
        value, gradient = compiled(*map(jnp.array, (1.0, 1.0, b, t1, past, y0)))
        return [value, *gradient]

    return found


THREE, FIVE = lx.PiecewiseAdjoint(num_intervals=3), lx.PiecewiseAdjoint(num_intervals=5)


@pytest.mark.parametrize(
    "adjoint, n", [(CONTINUOUS, 5), (THREE, 3), pytest.param(FIVE, 5, marks=pytest.mark.slow)],
    ids=["continuous", "piecewise", "piecewise, longer"],
)  # fmt: skip
def test_decay(adjoint, n):
    """y, ∂y/∂a and ∂y/∂τ of y' = -a y(t-τ) at T = n."""
    np.testing.assert_allclose(decay(adjoint)(float(n), 1.0, 1.0), EXACT[n], rtol=1e-8)


@pytest.mark.parametrize("adjoint", [CONTINUOUS, THREE], ids=["continuous", "piecewise"])
def test_jump(adjoint):
    """y0 ≠ φ(0): at T = 9/4 (the third piece is a quarter), ∂y/∂τ = 1/2, which without the jump would be -1/2."""
    np.testing.assert_allclose(decay(adjoint)(2.25, 0.0, 1.0), [-7 / 32, -19 / 16, 1 / 2], rtol=1e-8)


def test_interval_within_the_delay():
    """T ≤ τ: nothing is looked up, and the backward pass still reads the solution between mesh points: with a past of 1,
    y' = y² - a from y(0) = 0 is solved by -√a tanh(√a t)."""
    value, slope = jax.value_and_grad(lambda a: -jnp.sqrt(a) * jnp.tanh(jnp.sqrt(a) * 0.9))(1.0)
    np.testing.assert_allclose(decay(CONTINUOUS)(0.9, 1.0, 0.0, b=1.0), [value, slope, 0.0], rtol=1e-8, atol=1e-12)


def test_equal_delays_with_a_jump():
    """y' = -2 y(t-τ₁) - 3 y(t-τ₂) with τ₁ = τ₂: gradients 2 and 3."""

    def end(delays):
        field = lambda t, y, z, args: -2 * z[0] - 3 * z[1]
        return solve(field, delays, 1.5, jnp.array(0.0), None, y0=jnp.array(1.0), adjoint=CONTINUOUS).ys[0]

    one = jnp.array(1.0)
    np.testing.assert_allclose(jax.jit(jax.grad(end))((one, one)), [2.0, 3.0], rtol=1e-7)


@pytest.mark.parametrize(
    "adjoint, t1",
    [(PIECEWISE, 1.3), *[pytest.param(adjoint, 2.5, marks=pytest.mark.slow) for adjoint in (CONTINUOUS, PIECEWISE)]],
)
def test_spiral_with_observations(adjoint, t1):
    """The paper's spiral fit: 26 observations, the weights of a 2-10-2 network, T = 5 τ, or less, with
    a last piece that is cut short."""
    keys = jax.random.split(jax.random.key(0))
    weights = (jax.random.normal(keys[0], (10, 2)) / 2, jax.random.normal(keys[1], (2, 10)) / 3)
    ts = jnp.linspace(0, t1, 26)

    def loss(weights, start, adjoint):
        field = lambda t, y, z, w: w[1] @ jnp.tanh(w[0] @ (y + z))
        ys = solve(field, 0.5, t1, start, weights, ts=ts, adjoint=adjoint).ys
        return jnp.mean((ys - jnp.stack([jnp.sin(ts), jnp.cos(2 * ts)], axis=1)) ** 2)

    start = jnp.array([0.0, 1.0])
    gradient = lambda adjoint: jax.jit(jax.grad(lambda *given: loss(*given, adjoint), argnums=(0, 1)))(weights, start)
    assert_close(gradient(adjoint), gradient(DISCRETE), rtol=1e-7)


@pytest.mark.slow
def test_population_with_a_batch():
    """y' = r y (1 - y(t-1)) for 100 initial values at once, observed every 0.05 up to T = 3."""
    ts = jnp.linspace(0.05, 3, 60)

    def loss(r, start, adjoint):
        ys = solve(lambda t, y, z, r: r * y * (1 - z), 1.0, 3.0, start, r, ts=ts, adjoint=adjoint).ys
        return jnp.mean((ys - 1) ** 2)

    given = jnp.array(1.8), jnp.linspace(0.1, 1.5, 100)
    expected = jax.grad(loss, argnums=(0, 1))(*given, DISCRETE)
    for adjoint in (CONTINUOUS, PIECEWISE):
        assert_close(jax.grad(loss, argnums=(0, 1))(*given, adjoint), expected, rtol=1e-5)


class Wave(eqx.Module):
    """A history with parameters."""

    rate: jax.Array

    def __call__(self, t):
        return jnp.stack([jnp.cos(self.rate * t), jnp.sin(t + self.rate)])


def test_two_delays_and_a_history_with_parameters():
    """Every differentiable input at once, y0 ≠ φ(t0) included."""
    ts = jnp.array([0.4, 1.0, 1.7, 2.6])

    def loss(args, delays, history, y0, t1, ts, adjoint):
        def field(t, y, z, args):
            a, b = args
            return -a * y + b * jnp.sin(t + z["short"][::-1]) * z["long"]

        saveat = dfx.SaveAt(ts=ts, t1=True)
        ys = solve(field, delays, t1, history, args, y0=y0, adjoint=adjoint, saveat=saveat).ys
        return jnp.sum(ys**2) + ys[-1, 0]

    given = (
        (jnp.array(0.7), jnp.array(1.3)),
        {"short": jnp.array(0.37), "long": jnp.array(0.91)},
        Wave(jnp.array(0.8)),
        jnp.array([0.5, -0.4]),
        jnp.array(3.1),
        ts,
    )
    gradient = lambda adjoint: eqx.filter_jit(eqx.filter_grad(lambda given: loss(*given, adjoint)))(given)
    assert_close(gradient(CONTINUOUS), gradient(DISCRETE), rtol=1e-6)


def test_start_and_declared_jumps():
    """Derivatives with respect to t0, a jump of the vector field and a jump of the history."""

    def end(t0, at, before, adjoint):
        field = lambda t, y, z, at: jnp.where(t < at, -z, 0.5 * y)
        history = lambda t: jnp.where(t < lax_stop(before), 1.0, jnp.cos(t))
        lax_stop = jax.lax.stop_gradient
        return lx.ddesolve(
            lx.DelayTerm(lambda t, y, z, _: field(t, y, z, lax_stop(at)), 1.0), dfx.Tsit5(), t0, 2.3, None, history,
            y0=jnp.array(0.7), jump_ts=jnp.stack([before, at]), stepsize_controller=TIGHT, adjoint=adjoint,
        ).ys[0]  # fmt: skip

    given = jnp.array(0.1), jnp.array(1.3), jnp.array(-0.4)
    gradient = lambda adjoint: jax.jit(jax.grad(lambda *given: end(*given, adjoint), argnums=(0, 1, 2)))(*given)
    assert_close(gradient(CONTINUOUS), gradient(DISCRETE), rtol=1e-6)


def test_costate_is_the_sensitivity_to_the_state():
    """λ(t)·δ is the change of the loss when δ is added to the state at time t."""
    field = lambda t, y, z, args: jnp.stack([y[1] - 0.3 * z[0] ** 2, -jnp.sin(z[0]) - 0.2 * y[1]])
    ts = jnp.array([0.9, 2.0, 3.4, 4.0])
    loss = lambda ys: jnp.sum(jnp.cos(ys) * jnp.array([1.0, 2.0]))
    solution = solve(field, 1.0, 4.0, jnp.array([0.5, 0.2]), None, saveat=dfx.SaveAt(ts=ts, dense=True))
    costate = lx.ContinuousAdjoint(dfx.Tsit5(), TIGHT).costate(solution, ts, jax.grad(loss)(solution.ys))

    @jax.jit
    def restarted(t, delta):
        later = lx.ddesolve(
            lx.DelayTerm(field, 1.0), dfx.Tsit5(), t, 4.0, None, solution, y0=solution.evaluate(t) + delta,
            saveat=dfx.SaveAt(dense=True), stepsize_controller=TIGHT,
        )  # fmt: skip
        ys = jax.vmap(lambda s: jnp.where(s < t, solution.evaluate(s), later.evaluate(s)))(ts)
        return loss(ys)

    delta = jnp.array([0.6, -0.8])
    for t in (0.2, 1.3, 2.0, 2.75, 3.7):
        eps = 1e-5
        change = (restarted(t, eps * delta) - restarted(t, -eps * delta)) / (2 * eps)
        np.testing.assert_allclose(costate(t) @ delta, change, rtol=1e-6)


def test_small_delays_give_the_ordinary_adjoint():
    """As τ → 0 the gradient tends to that of diffrax's BacksolveAdjoint for the ODE, with a difference of O(τ)."""
    start, a = jnp.array([1.0, 0.3]), jnp.array(0.8)
    field = lambda y, z, a: jnp.stack([a * z[1], -jnp.sin(y[0]) - 0.1 * z[1]])

    def delayed(a, tau):
        ys = solve(lambda t, y, z, a: field(y, z, a), tau, 1.0, start, a, adjoint=CONTINUOUS).ys
        return jnp.sum(ys**2)

    def ordinary(a):
        term = dfx.ODETerm(lambda t, y, a: field(y, y, a))
        options = {"stepsize_controller": TIGHT, "adjoint": dfx.BacksolveAdjoint(stepsize_controller=TIGHT)}
        return jnp.sum(dfx.diffeqsolve(term, dfx.Tsit5(), 0.0, 1.0, None, start, a, **options).ys ** 2)

    limit, gradient = jax.grad(ordinary)(a), jax.jit(jax.grad(delayed))
    coarse, fine, finest = (gradient(a, tau) for tau in (0.02, 0.01, 0.005))
    np.testing.assert_allclose((coarse - limit) / (fine - limit), 2.0, rtol=0.05)
    # Extrapolated to τ = 0 from three values.
    np.testing.assert_allclose(coarse / 3 - 2 * fine + 8 * finest / 3, limit, rtol=1e-5)


@pytest.mark.parametrize(
    "adjoint", [CONTINUOUS, pytest.param(PIECEWISE, marks=pytest.mark.slow)], ids=["continuous", "piecewise"]
)
def test_jit_and_vmap(adjoint):
    """Of lanes that take different numbers of steps."""

    def end(a, adjoint):
        return solve(lambda t, y, z, a: -z + jnp.sin(a * t), 1.0, 1.9, jnp.array(1.0), a, adjoint=adjoint).ys[0]

    rates = jnp.array([0.4, 9.0])
    alone = jax.jit(jax.grad(lambda a: end(a, DISCRETE)))
    lanes = jax.jit(jax.vmap(jax.grad(lambda a: end(a, adjoint))))
    np.testing.assert_allclose(lanes(rates), [alone(rate) for rate in rates], rtol=1e-6)


def test_own_tolerances():
    """Tighter tolerances backwards make a finer gradient with more evaluations."""

    def end(a, tolerance):
        adjoint = lx.ContinuousAdjoint(stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance))
        field = lambda t, y, z, a: jnp.sin(3 * t) * y - a * z**2
        return solve(field, 1.0, 3.3, jnp.array(1.0), a, adjoint=adjoint).ys[0]

    gradient = jax.jit(jax.grad(end))
    with counting() as found:
        coarse, fine, finest = (gradient(jnp.array(0.6), tol).block_until_ready() for tol in (1e-3, 1e-6, 1e-10))
    few, more, most = found
    assert few < more < most
    assert abs(fine - finest) < abs(coarse - finest) / 100


def test_backward_evaluations_are_counted():
    """Once per run of the program; for the continuous adjoint in the test above."""
    end = lambda a: solve(lambda t, y, z, a: -a * z * y, 1.0, 1.5, jnp.array(1.0), a, adjoint=PIECEWISE).ys[0]
    gradient = jax.jit(jax.grad(end))
    with counting() as found:
        for rate in (1.0, 1.0):
            gradient(jnp.array(rate))
    assert len(found) == 2 and found[0] == found[1] > 0


def test_evaluations_of_the_discrete_adjoint_are_counted():
    """Seven per step, of lanes one by one. Nobody listens afterwards."""

    def end(a):
        solution = solve(lambda t, y, z, a: -z + jnp.sin(a * t), 1.0, 1.9, jnp.array(1.0), a)
        return solution.ys[0], solution.stats

    gradients = lambda: jax.jit(jax.vmap(jax.grad(end, has_aux=True)))(jnp.array([0.4, 9.0]))
    with counting() as found:
        _, stats = gradients()
    few, many = 7 * stats["num_accepted_steps"]
    assert sorted(found) == [few, many] and few < many and np.all(stats["num_stages"] == 7)
    jax.block_until_ready(gradients())
    jax.effects_barrier()
    assert len(found) == 2


def test_piecewise_keeps_one_state_per_delay():
    """Between the passes there are y(0), y(τ), …, y(nτ) and the inputs, whatever the number of steps."""
    n, d = 3, 5

    def loss(a, start):
        saveat = dfx.SaveAt(t1=True)
        return solve(lambda t, y, z, a: -a * jnp.sin(z), 1.0, float(n), start, a, adjoint=PIECEWISE, saveat=saveat).ys[0]

    def kept(a, start):
        _, transpose = jax.vjp(loss, a, start)
        return [leaf for leaf in jax.tree.leaves(transpose) if eqx.is_inexact_array(leaf)]

    shapes = [leaf.shape for leaf in jax.eval_shape(kept, jnp.array(0.5), jnp.linspace(0, 1, d))]
    assert shapes.count((n + 1, d)) == 1
    # All else is the input: the history and y0, the delay, a, and numbers of the solver.
    rest = [shape for shape in shapes if shape != (n + 1, d)]
    assert sum(int(np.prod(shape)) for shape in rest) <= 3 * d + 16


def test_refusals():
    one = jnp.array(1.0)
    field = lambda t, y, z, args: -args * y
    run = lambda adjoint, delays=1.0, history=one, **options: solve(
        field, delays, 2.0, history, one, adjoint=adjoint, **options
    )
    for message, options in (
        ("2 delays", {"delays": (1.0, 2.0)}),
        ("history that is a function", {"history": lambda t: one * t}),
        ("jump_ts", {"jump_ts": jnp.array([0.5])}),
        ("an event", {"event": dfx.Event(lambda t, y, args: y < 0, None)}),
        ("dense=True", {"saveat": dfx.SaveAt(dense=True)}),
        ("steps=", {"saveat": dfx.SaveAt(steps=True)}),
        ("complex", {"history": one + 0j}),
        ("StepTo", {"stepsize_controller": dfx.StepTo(jnp.linspace(0, 2, 5))}),
    ):
        with pytest.raises(ValueError, match=f"{message}.*DiscreteAdjoint"):
            run(PIECEWISE, **options)
    with pytest.raises(ValueError, match=r"an event.*DiscreteAdjoint"):
        run(CONTINUOUS, event=dfx.Event(lambda t, y, args: y < 0, None))
    with pytest.raises(ValueError, match=r"complex.*DiscreteAdjoint"):
        run(CONTINUOUS, history=one + 0j)
    with pytest.raises(ValueError, match=r"StepTo.*stepsize_controller"):
        run(CONTINUOUS, stepsize_controller=dfx.StepTo(jnp.linspace(0, 2, 5)))
    with pytest.raises(ValueError, match="num_intervals"):
        jax.grad(lambda tau: run(PIECEWISE, tau).ys[0])(one)
    with pytest.raises(ValueError, match="expected all three for a costate"):
        CONTINUOUS.costate(run(DISCRETE), jnp.array([1.0]), jnp.ones((1,)))


def test_wrong_number_of_intervals_is_a_result():
    solution = solve(
        lambda t, y, z, a: -z, 1.0, 2.5, jnp.array(1.0), None, adjoint=lx.PiecewiseAdjoint(num_intervals=2), throw=False
    )
    assert solution.result == lx.RESULTS.bad_intervals


def test_an_unsupported_gradient_is_an_error():
    """Not NaN, and not zero."""

    def of_dense(a):
        solution = solve(lambda t, y, z, a: -a * z, 1.0, 2.0, jnp.array(1.0), a, adjoint=CONTINUOUS, saveat=dense)
        return solution.evaluate(1.3)

    dense = dfx.SaveAt(dense=True)
    with pytest.raises(Exception, match="not those of steps or dense"):
        jax.grad(of_dense)(jnp.array(1.0))

    def of_time(t1, ts):
        adjoint = lx.PiecewiseAdjoint(num_intervals=2)
        saveat = dfx.SaveAt(ts=ts, t1=True)
        return jnp.sum(solve(lambda t, y, z, a: -z, 1.0, t1, jnp.array(1.0), None, adjoint=adjoint, saveat=saveat).ys)

    for argument in (0, 1):
        with pytest.raises(ValueError, match="gradient with respect to t0, t1 or ts"):
            jax.grad(of_time, argnums=argument)(jnp.array(2.0), jnp.array([0.5]))


def test_failing_backward_solve_raises():
    def end(a, adjoint):
        return solve(lambda t, y, z, a: -a * z * y, 1.0, 3.0, jnp.array(1.0), a, adjoint=adjoint).ys[0]

    with pytest.raises(Exception, match="backward solve of ContinuousAdjoint failed"):
        jax.grad(end)(jnp.array(1.0), lx.ContinuousAdjoint(max_steps=5))
