"""Gradients against exact values and finite differences: arguments, history, initial value, times and every delay."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jax.flatten_util import ravel_pytree

import lagrax as lx

from .differences import gradient_and_differences
from .problems import decay, hutchinson

TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-10)
NEWTON = optx.Newton(rtol=1e-12, atol=1e-12)


def check_gradient(f, x, rtol=1e-6, step=1e-4):
    gradient, expected = gradient_and_differences(f, x, step)
    np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=rtol * np.max(np.abs(expected)))


def final_value(a, tau, t1, history=1.0, y0=None, adjoint=None):
    sol = lx.ddesolve(
        lx.DelayTerm(decay, tau), dfx.Tsit5(), 0.0, t1, None, history, a, y0=y0,
        stepsize_controller=TIGHT, max_steps=256, adjoint=lx.DiscreteAdjoint() if adjoint is None else adjoint,
    )  # fmt: skip
    return sol.ys[0]


EXACT = [
    (1.5, (-3 / 8, -5 / 4, -1 / 2), {}),
    (3.5, (25 / 384, 103 / 96, -5 / 16), {}),
    (5.0, (19 / 120, 1 / 8, 7 / 6), {}),
    # Zero for the delay is the mark of a solver that drops the jump.
    (1.5, (1 / 2, -1 / 2, 1.0), {"history": 0.0, "y0": 1.0}),
]


GRADIENT = eqx.filter_jit(jax.value_and_grad(final_value, argnums=(0, 1)))


@pytest.mark.parametrize("t1, exact, kwargs", EXACT)
def test_exact_gradients(t1, exact, kwargs):
    value, gradient = GRADIENT(jnp.array(1.0), jnp.array(1.0), jnp.array(t1), **kwargs)
    np.testing.assert_allclose([value, *gradient], exact, rtol=1e-7)


@pytest.mark.parametrize(
    "adjoint",
    [
        lx.DiscreteAdjoint(),
        lx.ContinuousAdjoint(),
        pytest.param(lx.PiecewiseAdjoint(num_intervals=2), marks=pytest.mark.slow),
    ],
    ids=lambda adjoint: type(adjoint).__name__,
)
def test_without_jit(adjoint):
    """Where the solve is compiled by itself, and its gradient after it."""
    t1, exact, kwargs = EXACT[3]
    value, gradient = jax.value_and_grad(final_value, argnums=(0, 1))(1.0, 1.0, t1, adjoint=adjoint, **kwargs)
    np.testing.assert_allclose([value, *gradient], exact, rtol=1e-7)


@pytest.mark.parametrize("t1, exact, kwargs", EXACT[2:])
def test_forward_mode(t1, exact, kwargs):
    f = lambda v: final_value(v[0], v[1], t1, adjoint=lx.ForwardMode(), **kwargs)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(f))(jnp.array([1.0, 1.0])), exact[1:], rtol=1e-7)


@pytest.mark.slow
def test_hessian_by_nested_forward_mode():
    f = lambda v: final_value(v[0], v[1], 3.5, adjoint=lx.ForwardMode())
    hessian = jax.jit(jax.jacfwd(jax.jacfwd(f)))(jnp.array([1.0, 1.0]))
    # From the exact solution 1 - a t + a²(t-τ)²/2 - a³(t-2τ)³/6 + a⁴(t-3τ)⁴/24 at t = 3.5.
    np.testing.assert_allclose(hessian, jax.hessian(_decay_by_hand)(jnp.array([1.0, 1.0])), rtol=1e-6)


def _decay_by_hand(v):
    a, tau, t = v[0], v[1], 3.5
    return 1 - a * t + (a * (t - tau)) ** 2 / 2 - (a * (t - 2 * tau)) ** 3 / 6 + (a * (t - 3 * tau)) ** 4 / 24


def test_equal_delays_with_a_jump_have_separate_gradients():
    def loss(delays):
        field = lambda t, y, z, args: -2 * z[0] - 3 * z[1]
        term = lx.DelayTerm(field, (delays[0], delays[1]))
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.5, None, 0.0, y0=1.0, stepsize_controller=TIGHT).ys[0]

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.array([1.0, 1.0])), [2.0, 3.0], rtol=1e-9)


class Waves(eqx.Module):
    """A history with parameters."""

    amplitude: jax.Array
    frequency: jax.Array

    def __call__(self, t):
        return self.amplitude * jnp.cos(self.frequency * t)


def three_delays(solver, controller, parameters, dt0=None):
    """Three delays, a jump at t0, and a field and a history that close over traced values."""
    weights, history, y0, delays = parameters

    def field(t, y, delayed, args):
        near, middle, far = delayed["near"], *delayed["rest"]
        return jnp.tanh(weights[0] * y - weights[1] * near * middle) - 0.3 * far + 0.1 * jnp.sin(args * t)

    term = lx.DelayTerm(field, {"near": delays[0], "rest": (delays[1], delays[2])})
    ts = jnp.array([0.35, 0.9, 1.6, 2.2, 2.9])
    sol = lx.ddesolve(
        term, solver, 0.0, 3.0, dt0, lambda t: history(t), weights[2], y0=y0,
        saveat=dfx.SaveAt(ts=ts), stepsize_controller=controller, max_steps=1024,
    )  # fmt: skip
    return jnp.sum(jnp.sin(3 * sol.ys))


PARAMETERS = (
    jnp.array([0.4, 1.3, 2.0]),
    Waves(jnp.array([1.0, 0.5]), jnp.array([2.0, 1.0])),
    jnp.array([0.3, 0.9]),
    jnp.array([0.41, 0.77, 1.19]),
)


@pytest.mark.parametrize(
    "solver", [dfx.Tsit5(), pytest.param(dfx.Dopri8(), marks=pytest.mark.slow)], ids=lambda s: type(s).__name__
)
def test_against_finite_differences(solver):
    controller = dfx.PIDController(rtol=1e-12, atol=1e-12)
    check_gradient(lambda p: three_delays(solver, controller, p), PARAMETERS)


def test_gradient_is_that_of_the_discretisation():
    """With coarse fixed steps the solution is wrong by 1e-3, but its gradient is still the gradient of what was computed:
    the grid is frozen and the breakpoints move."""
    check_gradient(lambda p: three_delays(dfx.Bosh3(), dfx.ConstantStepSize(), p, 0.11), PARAMETERS, rtol=2e-6)


def test_implicit_solver():
    f = lambda v: lx.ddesolve(
        lx.DelayTerm(hutchinson, v[1]), dfx.Kvaerno5(), 0.0, 2.5, None, v[2], v[0],
        stepsize_controller=dfx.PIDController(rtol=1e-10, atol=1e-10), max_steps=1024,
    ).ys[0]  # fmt: skip
    check_gradient(f, jnp.array([1.5, 1.0, 0.5]), rtol=1e-6, step=1e-3)


def test_times():
    """Gradients with respect to t0, t1, the observation times and declared jumps."""

    def loss(v):
        t0, t1, t_save, jump = v
        field = lambda t, y, z, args: -z + jnp.where(t < jump, 0.0, 1.0) * y
        sol = lx.ddesolve(
            lx.DelayTerm(field, 0.8), dfx.Tsit5(), t0, t1, None, lambda t: jnp.cos(t),
            saveat=dfx.SaveAt(subs=[dfx.SubSaveAt(ts=t_save[None]), dfx.SubSaveAt(t1=True)]),
            stepsize_controller=dfx.PIDController(rtol=1e-12, atol=1e-12), jump_ts=jump[None], max_steps=512,
        )  # fmt: skip
        return sol.ys[0][0] + 2 * sol.ys[1][0]

    check_gradient(loss, jnp.array([0.1, 2.4, 1.7, 0.63]), rtol=1e-6)


def test_declared_jump_in_the_history():
    """φ jumps at -0.4, so f does at τ - 0.4: with y = 0 before and 1 after, y(t1) = -(t1 - τ + 0.4) for t1 < τ."""

    def final(tau, jump):
        history = lambda t: jnp.where(t < jump, 0.0, 1.0)
        return lx.ddesolve(
            lx.DelayTerm(decay, tau), dfx.Tsit5(), 0.0, 0.9, None, history, 1.0, y0=0.0,
            stepsize_controller=TIGHT, jump_ts=jnp.reshape(jump, (1,)),
        ).ys[0]  # fmt: skip

    value, gradient = jax.jit(jax.value_and_grad(final, argnums=(0, 1)))(1.0, -0.4)
    np.testing.assert_allclose([value, *gradient], [-0.3, 1.0, 1.0], atol=1e-9)


def test_event_time():
    """y' = -y(t - 1) from 1 crosses 0.2 at t = 0.8/a."""

    def crossing(a):
        event = dfx.Event(lambda t, y, args, **kwargs: y - 0.2, optx.Newton(1e-12, 1e-12))
        sol = lx.ddesolve(
            lx.DelayTerm(decay, 1.0), dfx.Tsit5(), 0.0, 5.0, None, 1.0, a, event=event, stepsize_controller=TIGHT
        )
        return sol.ts[0]

    np.testing.assert_allclose(jax.jit(jax.value_and_grad(crossing))(2.0), [0.4, -0.2], rtol=1e-8)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_vmapped_and_jitted(dtype):
    """Each lane has its own steps, and the gradient it would have alone."""
    controller = dfx.PIDController(rtol=1e-5, atol=1e-5)

    def final(r, tau):
        sol = lx.ddesolve(
            lx.DelayTerm(hutchinson, tau), dfx.Tsit5(), dtype(0), dtype(4), None, dtype(0.5), r,
            stepsize_controller=controller, max_steps=128,
        )  # fmt: skip
        return sol.ys[0]

    rates, taus = jnp.array([0.5, 1.5, 2.5], dtype), jnp.array([0.3, 1.0, 1.7], dtype)
    gradient = jax.jit(jax.grad(final, argnums=(0, 1)))
    batched = jax.jit(jax.vmap(gradient))(rates, taus)
    alone = [gradient(r, tau) for r, tau in zip(rates, taus, strict=True)]
    tolerance = 1e-12 if dtype == jnp.float64 else 2e-4
    np.testing.assert_allclose(batched, np.array(alone).T, rtol=tolerance, atol=tolerance)
    assert batched[0].dtype == dtype


def test_no_nan_from_branches_not_taken():
    """√y and log y are never evaluated outside their domain, although unused rows hold zeros."""

    def loss(y0):
        field = lambda t, y, z, args: jnp.sqrt(y) - 0.5 * jnp.log(z)
        return lx.ddesolve(lx.DelayTerm(field, 0.5), dfx.Tsit5(), 0.0, 2.0, None, y0).ys[0]

    assert jnp.isfinite(jax.grad(loss)(1.0))


def test_jvp_through_the_default_names_forward_mode():
    with pytest.raises(TypeError, match="ForwardMode"):
        jax.jvp(lambda a: final_value(a, 1.0, 1.5), (1.0,), (1.0,))


@pytest.mark.parametrize("keep_stages", [False, True])
def test_hessian_of_the_default(keep_stages):
    """Forward over reverse."""
    f = lambda v: final_value(v[0], v[1], 3.5, adjoint=lx.DiscreteAdjoint(keep_stages=keep_stages))
    np.testing.assert_allclose(
        jax.jit(jax.hessian(f))(jnp.array([1.0, 1.0])), jax.hessian(_decay_by_hand)(jnp.array([1.0, 1.0])), rtol=1e-6
    )


LONGER = [
    pytest.param(solver, marks=pytest.mark.slow) for solver in (dfx.Tsit5(), dfx.Dopri8(), dfx.Kvaerno3(root_finder=NEWTON))
]


@pytest.mark.parametrize("solver", [dfx.Heun(), dfx.Bosh3(), *LONGER], ids=lambda s: type(s).__name__)
def test_stages_remembered_give_the_same_gradient(solver):
    """In arguments, history, y0, two delays and t1, with the field's own times among its inputs, one by one and batched."""

    def loss(inputs, keep_stages):
        rate, scale, y0, delays, t1 = inputs
        field = lambda t, y, z, args: rate * jnp.tanh(y) * (1 - z[0]) - 0.3 * z[1] + jnp.sin(t * y)
        sol = lx.ddesolve(
            lx.DelayTerm(field, [delays[0], delays[1]]), solver, 0.0, t1, 0.1, lambda t: scale * (1 + t), y0=y0,
            stepsize_controller=dfx.ConstantStepSize(), saveat=dfx.SaveAt(ts=[0.33 * t1, t1]), max_steps=64,
            adjoint=lx.DiscreteAdjoint(keep_stages=keep_stages),
        )  # fmt: skip
        return jnp.sum(sol.ys**2)

    inputs = (jnp.array([1.3, 0.7]), jnp.array([1.1, 0.2]), jnp.array([0.4, 0.5]), jnp.array([[0.7, 0.41], [0.3, 1.1]]))
    inputs = (*inputs, jnp.array([2.0, 1.5]))
    gradient = lambda keep_stages: jax.jit(jax.vmap(jax.grad(lambda inputs: loss(inputs, keep_stages))))(inputs)
    remembered, computed = ravel_pytree(gradient(True))[0], ravel_pytree(gradient(False))[0]
    np.testing.assert_allclose(remembered, computed, rtol=1e-12)


def test_stages_remembered_spare_evaluations():
    """Of a field whose gradient needs nothing from its evaluation, as under `jax.checkpoint`."""
    evaluations = []

    @jax.custom_vjp
    def slope(a, y):
        return jax.pure_callback(lambda a, y: evaluations.append(1) or np.asarray(-a * y), y, a, y)

    slope.defvjp(lambda a, y: (slope(a, y), (a, y)), lambda kept, slope_bar: (-kept[1] * slope_bar, -kept[0] * slope_bar))

    def count(keep_stages):
        def final(a):
            term = lx.DelayTerm(lambda t, y, z, args: slope(args, y), 1.0)
            options = {"stepsize_controller": dfx.ConstantStepSize(), "adjoint": lx.DiscreteAdjoint(keep_stages=keep_stages)}
            return lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.5, 0.5, 1.0, a, max_steps=8, **options).ys[0]

        evaluations.clear()
        np.testing.assert_allclose(jax.jit(jax.grad(final))(1.0), -1.5 * np.exp(-1.5), rtol=1e-3)
        return len(evaluations)

    # Forwards, once at the start and six times in each of three steps; backwards, the five stages that others start from.
    assert count(keep_stages=False) >= 1 + 3 * 6 + 3 * 5
    assert count(keep_stages=True) == 1 + 3 * 6
