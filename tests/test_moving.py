"""Delays that depend on time and on the state, vanish, or are shorter than a step: values, orders, breakpoints."""

import dataclasses

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import lagrax as lx
from lagrax import nn

from .moving_problems import MOVING
from .problems import decay, decay_solution

STATE = MOVING["state-dependent delay"]
FIXED = {"stepsize_controller": dfx.ConstantStepSize()}


def _error(problem, **options):
    solution = problem.solve(jnp.array(problem.parameters), **options)
    return np.max(np.abs(np.asarray(solution.ys[0]) - problem.value))


@pytest.mark.parametrize("name", MOVING)
def test_known_solutions(name):
    assert _error(MOVING[name]) < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("solver", [dfx.Dopri5(), dfx.Dopri8()], ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("name", MOVING)
def test_known_solutions_by_other_solvers(name, solver):
    assert _error(MOVING[name], solver=solver) < 1e-7


@pytest.mark.parametrize("solver", [dfx.Kvaerno5()], ids=lambda solver: type(solver).__name__)
def test_a_state_dependent_delay_by_other_solvers(solver):
    assert _error(STATE, solver=solver) < 1e-7


@pytest.mark.parametrize(
    "solver, order",
    [
        pytest.param(dfx.Bosh3(), 3, marks=pytest.mark.slow),
        (dfx.Tsit5(), 5),
        pytest.param(dfx.Dopri5(), 5, marks=pytest.mark.slow),
    ],
)
def test_the_order_is_kept_across_located_breakpoints(solver, order):
    """Over four breakpoints that are found on the way. Without them the order is between 1 and 3."""
    run = jax.jit(lambda dt0: STATE.solve(jnp.array(STATE.parameters), solver=solver, dt0=dt0, **FIXED).ys[0])
    steps = 0.6 / 2.0 ** np.arange(5)
    errors = np.array([abs(float(run(dt0)) - STATE.value) for dt0 in steps])
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] > order - 0.3


def test_breakpoints_are_where_the_delay_looks_at_them():
    """Mesh points of the state-dependent problem: 1, 2.0725, 3.08068, 4.09365."""
    solution = STATE.solve(jnp.array(STATE.parameters), saveat=dfx.SaveAt(steps=True))
    ts = np.asarray(solution.ts)
    for known in (1.0, 2.0725, 3.08068, 4.09365):
        assert np.min(np.abs(ts[np.isfinite(ts)] - known)) < 1e-5


def test_a_constant_written_as_a_function_is_the_constant():
    for delay in (lambda t, y, args: 1.0, lx.At(lambda t, y, args: t - 1)):
        solution = lx.ddesolve(
            lx.DelayTerm(decay, delay),
            dfx.Tsit5(),
            0.0,
            5.0,
            None,
            1.0,
            1.0,
            stepsize_controller=dfx.PIDController(1e-9, 1e-9),
        )
        assert abs(float(solution.ys[0]) - decay_solution(5.0)) < 1e-8


def test_a_minimum_changes_nothing_but_the_steps():
    promised = dataclasses.replace(STATE, delays=lx.Lag(STATE.delays, minimum=0.9))
    saveat = dfx.SaveAt(subs=[dfx.SubSaveAt(t0=True, steps=True), dfx.SubSaveAt(t1=True)])
    run = jax.jit(lambda tolerance, t1: promised.solve(jnp.array(STATE.parameters), tolerance, t1=t1, saveat=saveat))
    assert abs(float(run(1e-9, 6.0).ys[1][0]) - STATE.value) < 1e-8
    assert np.max(np.diff(run(1e-2, 3.0).ts[0][:6])) <= 0.9 * (1 + 1e-12)


def test_tiny_and_zero_delays_take_long_steps():
    """y' = -y(t - τ) with τ = 1e-3 and 0 needs about as many steps as the ordinary equation."""
    run = eqx.filter_jit(
        lambda delay: lx.ddesolve(
            lx.DelayTerm(decay, lx.Lag(delay, overlap=True)),
            dfx.Tsit5(),
            0.0,
            5.0,
            None,
            1.0,
            1.0,
            stepsize_controller=dfx.PIDController(1e-8, 1e-8),
        )
    )
    # The characteristic root of λ = -exp(-λ τ), after a transient of the length of τ and the size of τ².
    for delay, root in ((0.0, -1.0), (1e-3, -1.001001501834)):
        solution = run(jnp.asarray(delay))
        assert abs(float(solution.ys[0]) / np.exp(5 * root) - 1) < 2 * delay**2 + 1e-6
        assert int(solution.stats["num_steps"]) < 80


def test_all_kinds_in_one_tree():
    """Every term looks one back, in its own way: together they are one."""
    delays = {"number": 1.0, "function": lambda t, y, args: 1.0, "time": (lx.At(lambda t, y, args: t - 1),)}
    field = lambda t, y, z, args: -(z["number"] + z["function"] + z["time"][0]) / 3
    controller = dfx.PIDController(1e-9, 1e-9)
    solution = lx.ddesolve(lx.DelayTerm(field, delays), dfx.Tsit5(), 0.0, 4.0, None, 1.0, stepsize_controller=controller)
    assert abs(float(solution.ys[0]) - decay_solution(4.0)) < 1e-8


def test_lanes_have_breakpoints_and_sweeps_of_their_own():
    parameters = jnp.array([[1.0, 1.0, 0.25], [1.3, 0.05, 2.0]])
    end = lambda p: STATE.solve(p, 1e-6).ys[0]
    together, alone = jax.jit(jax.vmap(end))(parameters), [jax.jit(end)(p) for p in parameters]
    assert np.allclose(together, alone, rtol=1e-13, atol=1e-13)


def test_saved_dense_and_continued():
    parameters = jnp.array(STATE.parameters)
    ts = jnp.linspace(0.1, 6.0, 7)
    whole = STATE.solve(parameters, saveat=dfx.SaveAt(ts=ts, dense=True))
    assert np.allclose(jax.vmap(whole.evaluate)(ts), whole.ys, atol=1e-12)
    # (Saved at as many times, so that it is the same program.)
    first = STATE.solve(parameters, saveat=dfx.SaveAt(ts=ts * 2.5 / 6.0, dense=True), t1=2.5)
    continued = dataclasses.replace(STATE, history=first, interval=(2.5, 6.0))
    assert abs(float(continued.solve(parameters).ys[0]) - STATE.value) < 1e-8


def test_an_event_is_located():
    """The self-referential solution is 3 at 4 + 2 ln(3/2)."""
    problem = MOVING["self-referential"]
    event = dfx.Event(lambda t, y, args, **_: y - 3, optx.Newton(1e-10, 1e-10))
    solution = problem.solve(jnp.array(problem.parameters), event=event)
    assert abs(float(solution.ts[0]) - (4 + 2 * np.log(1.5))) < 1e-8


def test_single_precision_and_trees():
    delays = lambda t, y, p: 1 + 0.25 * y["a"][0] ** 2
    field = lambda t, y, z, p: {"a": -z["a"], "b": z["a"][0] + 0 * y["b"]}
    past = {"a": jnp.ones(1, jnp.float32), "b": jnp.zeros((), jnp.float32)}
    controller = dfx.PIDController(1e-5, 1e-5)
    solution = lx.ddesolve(lx.DelayTerm(field, delays), dfx.Tsit5(), 0.0, 6.0, None, past, stepsize_controller=controller)
    assert solution.ys["a"].dtype == jnp.float32
    assert abs(float(solution.ys["a"][0, 0]) - STATE.value) < 1e-4


FAILURES = {
    "advanced_argument": (lambda t, y, args: 0.5 - t, {}),
    "bad_delay": (lx.Lag(lambda t, y, args: 2 - t, minimum=1.0), {}),
    "lag_nonfinite": (lambda t, y, args: jnp.where(t > 1, jnp.nan, 1.0), {}),
    "no_convergence": (lx.Lag(0.0, overlap=True), {"dt0": 4.0, **FIXED}),
    "max_steps_reached": (lambda t, y, args: 1 + y**2, {"max_steps": 3}),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_goes_wrong_at_run_time_is_a_result(name):
    delay, options = FAILURES[name]
    options = {"max_steps": 256, "dt0": None} | options
    dt0 = options.pop("dt0")
    solve = lambda throw: lx.ddesolve(
        lx.DelayTerm(decay, delay), dfx.Tsit5(), 0.0, 8.0, dt0, 1.0, 1.0, throw=throw, **options
    )
    assert solve(False).result == getattr(lx.RESULTS, name)
    with pytest.raises(eqx.EquinoxRuntimeError):
        solve(True)


MISTAKES = {
    "expected one of (t, y, args)": lambda t: 1.0,
    "returned shape (2,)": lambda t, y, args: jnp.ones(2),
    "returned shape () and dtype complex128": lambda t, y, args: jnp.asarray(1j),
    "minimum = -1.0": lx.Lag(lambda t, y, args: 1.0, minimum=-1.0),
    "expected one of them": lx.Lag(lambda t, y, args: 1.0, minimum=1.0, overlap=True),
    "lagrax.Lag(0.0, overlap=True)": 0.0,
    "is the derivative of a derivative": lx.Derivative(lx.Derivative(1.0)),
    "expected one it is not below": lx.Lag(1.0, minimum=1.5),
    "expected a positive finite number": lx.Lag(-1.0, overlap=True),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_can_be_seen_before_is_said_before(message):
    with pytest.raises(ValueError) as caught:
        term = lx.DelayTerm(lambda t, y, delayed, a: -a * delayed["a"], {"a": MISTAKES[message]})
        lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, 1.0, 1.0)
    assert message in str(caught.value) and "delays['a']" in str(caught.value)


@pytest.mark.parametrize("adjoint", [lx.ContinuousAdjoint(), lx.PiecewiseAdjoint()], ids=lambda a: type(a).__name__)
def test_the_papers_adjoints_refuse(adjoint):
    with pytest.raises(ValueError, match=r"a delay that moves or overlaps .*, expected .*constant"):
        STATE.solve(jnp.array(STATE.parameters), adjoint=adjoint)


class Affine(eqx.Module):
    """A delay with a parameter."""

    slope: jax.Array

    def __call__(self, t, y, args):
        return 1 + self.slope * jnp.tanh(y[0])


class Half(eqx.Module):
    def __call__(self, t, y, args):
        return t / 2


def test_a_model_with_moving_delays_is_trained_and_saved(tmp_path):
    delays = {"fixed": 1.0, "moving": lx.Lag(Affine(jnp.array(0.2)), minimum=0.5), "time": lx.At(Half())}
    field = nn.MLPField(1, width=4, depth=1, num_delays=3, key=jax.random.key(0))
    model = nn.NeuralDDE(field, delays, t1=2.0)
    x = jnp.array([0.4])
    value_and_gradient = eqx.filter_jit(eqx.filter_value_and_grad(lambda model: jnp.sum(model(x))))
    value, gradient = value_and_gradient(model)
    assert float(jnp.abs(gradient.delays["moving"].delay.slope)) > 0
    lx.save(tmp_path / "model.lagrax", model)
    again = lx.load(tmp_path / "model.lagrax", classes=(Affine, Half))
    assert jax.tree.structure(again) == jax.tree.structure(model)
    assert value_and_gradient(again)[0] == value


def test_the_first_part_of_a_node_and_ndde_needs_a_length():
    field = nn.MLPField(1, width=4, depth=1, key=jax.random.key(0))
    model = nn.NeuralODEDDE(field, field, lambda t, y, args: 1.0)
    with pytest.raises(ValueError, match="NeuralODEDDE got a delay that is a function or overlaps"):
        model(jnp.array([0.4]))
