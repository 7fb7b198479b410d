"""Delayed derivatives: values, order, kinks that do not smooth out, gradients."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

from .differences import gradient_and_differences

RATE, SHARE = np.pi / np.sqrt(3) + 1 / 20, np.sqrt(3) / (2 * np.pi) - 1 / 25


def logistic(t, y, delayed, p):
    """Kuang's neutral logistic equation; p = (r, c)."""
    population, growth = delayed
    return p[0] * y * (1 - population - p[1] * growth)


def solve(term, interval, history, args=None, tolerance=1e-9, solver=None, **options):
    settings = {"stepsize_controller": dfx.PIDController(tolerance, tolerance), "max_steps": 1024} | options
    dt0 = settings.pop("dt0", None)
    return lx.ddesolve(term, dfx.Tsit5() if solver is None else solver, *interval, dt0, history, args, **settings)


LOGISTIC = lx.DelayTerm(logistic, (1.0, lx.Derivative(1.0)))
LINE = lambda t: 2 + t


KVAERNO5 = dfx.Kvaerno5(root_finder=dfx.VeryChord(rtol=1e-11, atol=1e-11))


@pytest.mark.parametrize(
    "solver",
    [dfx.Tsit5(), *[pytest.param(solver, marks=pytest.mark.slow) for solver in (dfx.Dopri5(), dfx.Dopri8(), KVAERNO5)]],
    ids=lambda solver: type(solver).__name__,
)
def test_the_neutral_logistic_equation(solver):
    """Reference values by Gauss collocation. There is a kink in y itself at every whole number."""
    # (The output of an implicit method is not lifted, and its derivative costs hundreds of steps a delay.)
    times, room = ([10.0], 16384) if solver is KVAERNO5 else ([10.0, 40.0], 1024)
    options = {"solver": solver, "saveat": dfx.SaveAt(ts=jnp.array(times)), "max_steps": room}
    solution = solve(LOGISTIC, (0.0, times[-1]), LINE, jnp.array([RATE, SHARE]), **options)
    assert np.allclose(solution.ys, (1.326611001615101, 0.804413836197132)[: len(times)], rtol=0, atol=1e-7)


def test_a_derivative_beside_a_proportional_delay():
    """y' = 1 + y - 2 y(t/2)² - y'(t - π) with y = cos before 0 is solved by cos."""
    term = lx.DelayTerm(
        lambda t, y, z, args: 1 + y - 2 * z["half"] ** 2 - z["slope"],
        {"half": lx.At(lambda t, y, args: t / 2), "slope": lx.Derivative(np.pi)},
    )
    assert abs(float(solve(term, (0.0, np.pi), jnp.cos).ys[0]) + 1) < 1e-8


@pytest.mark.slow
def test_the_order_is_kept():
    """4 without the lifted output."""
    run = jax.jit(
        lambda dt0: solve(
            LOGISTIC, (0.0, 5.0), LINE, jnp.array([RATE, SHARE]), dt0=dt0, stepsize_controller=dfx.ConstantStepSize()
        ).ys[0]
    )
    steps = 0.3 / 2.0 ** np.arange(4)
    errors = np.array([abs(float(run(dt0) - run(0.3 / 32))) for dt0 in steps])
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] > 4.7


def test_known_gradients():
    """With respect to r, c and the delay, which the population and its growth share."""

    def end(p):
        term = lx.DelayTerm(logistic, (p[2], lx.Derivative(p[2])))
        return solve(term, (0.0, 2.5), LINE, p).ys[0]

    gradient = jax.jit(jax.grad(end))(jnp.array([1.86, 0.236, 1.0]))
    assert np.allclose(gradient, (0.6009277, 3.3596939, -3.1354684), rtol=0, atol=1e-6)


def test_separate_constant_delays_against_differences():
    """Two derivatives and a state, whose kinks fall on times of their own; both modes, and t0."""

    def end(p, adjoint=None):
        field = lambda t, y, z, args: RATE * y * (1 - z[0] - SHARE * z[1] - 0.1 * z[2])
        term = lx.DelayTerm(field, (p[0], lx.Derivative(p[1]), lx.Derivative(p[2])))
        return solve(term, (p[3], 4.3), LINE, tolerance=1e-10, adjoint=adjoint or lx.DiscreteAdjoint()).ys[0]

    p = jnp.array([1.0, 0.7123, 1.2345, 0.0])
    gradient, differences = gradient_and_differences(end, p)
    assert np.allclose(gradient, differences, rtol=1e-6, atol=1e-7)
    forward = jax.jit(jax.jacfwd(lambda p: end(p, lx.ForwardMode())))(p)
    assert np.allclose(forward, gradient, rtol=1e-9, atol=1e-10)


def test_equal_delays_of_a_state_and_its_derivative():
    """Of separate parameters that are equal, each has its own gradient: only the derivative's kinks make the field jump."""

    def end(p):
        return solve(lx.DelayTerm(logistic, (p[0], lx.Derivative(p[1]))), (0.0, 4.3), LINE, jnp.array([RATE, SHARE])).ys[0]

    gradient, differences = gradient_and_differences(end, jnp.ones(2))
    assert np.allclose(gradient, differences, rtol=1e-5)


def test_what_rounding_leaves_before_a_kink_is_no_step():
    """t + tau and t0 + 2 tau differ by one float at t0 = 50. A derivative looked up in a step that long has no slope."""

    def end(p, t0):
        field = lambda t, y, z, args: -0.3 * y + 0.3 * jnp.sin(z[0]) + 0.3 * z[1] + 0.1 * jnp.sin(t - t0)
        past = lambda t: 0.5 + 0.1 * jnp.sin(t - t0)
        term = lx.DelayTerm(field, (p[0], lx.Derivative(p[1])))
        return solve(term, (t0, t0 + 1.366), past, tolerance=1e-8, y0=jnp.array(0.2)).ys[0]

    values = jax.jit(jax.value_and_grad(end))
    p = np.array([0.11507241593597327, 0.9833293595650889])
    for t0 in (50.0, 0.1, 1e3):
        gradient = values(p, t0)[1]
        differences = [(values(p + step, t0)[0] - values(p - step, t0)[0]) / 2e-5 for step in 1e-5 * np.eye(2)]
        assert np.allclose(gradient, differences, rtol=0, atol=1e-8)


def test_a_state_dependent_one_against_differences():
    """y' = -y + c y'(t - 1 - y²/10) with a callable history, in every parameter."""

    def end(p):
        delay = lambda t, y, args: 1 + p[1] * y**2
        term = lx.DelayTerm(lambda t, y, z, args: -y + p[0] * z, lx.Derivative(delay))
        return solve(term, (0.0, 3.2), lambda t: p[2] * jnp.cos(t), tolerance=1e-11, max_steps=512).ys[0]

    gradient, differences = gradient_and_differences(end, jnp.array([0.5, 0.1, 1.2]))
    assert np.allclose(gradient, differences, rtol=1e-6, atol=1e-7)


def test_a_constant_past_has_no_slope():
    """y' = 1 + y'(t - 1)/2: the slope is 1, 1.5, 1.75, …"""
    term = lx.DelayTerm(lambda t, y, z, args: 1 + z / 2, lx.Derivative(1.0))
    assert abs(float(solve(term, (0.0, 3.0), 0.0).ys[0]) - 4.25) < 1e-9


def test_a_history_without_a_derivative_is_refused():
    history = lambda t: jax.pure_callback(lambda t: np.asarray(t), t, t)
    with pytest.raises(ValueError, match="the history has no derivative"):
        solve(LOGISTIC, (0.0, 1.0), history, jnp.array([RATE, SHARE]))
