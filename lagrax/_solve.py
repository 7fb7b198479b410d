"""`ddesolve`: check the input, lay the problem out flat, integrate, save."""

import dataclasses
import operator
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Inexact, PyTree

from ._adjoint import AbstractAdjoint, DiscreteAdjoint, ForwardMode
from ._check import (
    check_continued,
    check_history_slope,
    check_jumps,
    check_kind,
    check_lag_value,
    check_lags,
    check_steps,
    check_times,
    check_vector_field,
    concrete,
)
from ._distributed import Given, WithIntegrals, expand, of_states, with_integrals
from ._given import declared, history_function, initial_state, known_until, time_dtype, with_arrays
from ._impulses import Impulses, check_impulses, make_kicks
from ._lag import AbstractLag, are_planned, is_lag
from ._memory import rows_of
from ._network._network import network_of
from ._network._select import prepared
from ._output._dense import DenseSolution
from ._output._event import convert_events, locate_event
from ._output._results import RESULTS, failed
from ._output._save import save
from ._problem import Problem, ravel
from ._setup import UNLIMITED, Keep, Setup, make_setup
from ._term import DelayTerm
from ._trajectory import Trajectory
from ._xla._closure import with_closure
from ._xla._compiled import compiled

KEPT_KINKS = 32
"""How many kinks a dense solution hands on to a solve that continues it, besides the jumps declared for it."""


def ddesolve(
    term: DelayTerm,
    solver: dfx.AbstractSolver,
    t0: Any,
    t1: Any,
    dt0: Any,
    history: Any,
    args: PyTree = None,
    *,
    y0: PyTree = None,
    saveat: dfx.SaveAt = dfx.SaveAt(t1=True),
    stepsize_controller: dfx.AbstractStepSizeController = dfx.PIDController(rtol=1e-3, atol=1e-6),
    adjoint: AbstractAdjoint = DiscreteAdjoint(),
    jump_ts: Any = None,
    impulses: Impulses | None = None,
    event: dfx.Event | None = None,
    max_steps: int | None = 4096,
    memory: int | str | None = None,
    throw: bool = True,
    progress_meter: dfx.AbstractProgressMeter = dfx.NoProgressMeter(),
) -> dfx.Solution:
    """Solves a delay differential equation `y'(t) = f(t, y(t), y(t - τ), args)` from t0 to t1 > t0.

    Delays may be constant, depend on time or on the state, and vanish ([`lagrax.DelayTerm`][]).

    The arguments are those of `diffrax.diffeqsolve`, with `history` where its `y0` stands.

    **Arguments:**

    - `term`: a [`lagrax.DelayTerm`][], the vector field and its delays.
    - `solver`: a diffrax Runge–Kutta solver: `Euler`, `Heun`, `Midpoint`, `Ralston`, `Bosh3`, `Tsit5`, `Dopri5`, `Dopri8`,
      or for stiff problems `Kvaerno3`, `Kvaerno4`, `Kvaerno5`.
    - `t0`, `t1`: the interval. Differentiable.
    - `dt0`: the first step, or None to have one selected (adaptive steps only).
    - `history`: the past, y(t) for t ≤ t0: a state (constant past), a function of t returning a state, or the dense
      `Solution` of an earlier solve, which this one continues. Differentiable, with what a function closes over.
    - `args`: anything, handed to the vector field. Differentiable.
    - `y0`: the state at t0 if it is not `history(t0)`; the solution then jumps there. Differentiable.
    - `saveat`: a `diffrax.SaveAt`: `t0`, `t1`, `ts`, `steps`, `dense`, `fn`, `subs`.
    - `stepsize_controller`: `diffrax.PIDController`, `ConstantStepSize` or `StepTo`. Fixed steps are interrupted at
      breakpoints and then go on along their own grid.
    - `adjoint`: how to differentiate: [`lagrax.DiscreteAdjoint`][], [`lagrax.ForwardMode`][], or as the paper does,
      [`lagrax.ContinuousAdjoint`][] and [`lagrax.PiecewiseAdjoint`][].
    - `jump_ts`: times at which the vector field jumps, or (before t0) the history jumps or kinks. Differentiable. Steps end
      just before a jump and start just after it.
    - `impulses`: [`lagrax.Impulses`][], times at which the state itself is kicked. Differentiable.
    - `event`: a `diffrax.Event` that stops the solve when its condition comes true or crosses zero.
    - `max_steps`: how many steps may be attempted; also the size of the memory for the history. None, with `memory`, for any
      number of them, in a solve that is not differentiated backwards. [`lagrax.memory_of`][] says how much memory that is.
    - `memory`: how many steps of the past are kept, rounded up to a power of two; None for all, "auto" where the largest
      delay is known. It must be as many as fit into the largest delay. Then only `t0`, `t1` and `ts` can be saved.
    - `throw`: whether failure raises an error; if not, look at `result` of the solution.
    - `progress_meter`: a diffrax progress meter.

    **Returns:**

    A `diffrax.Solution`: `ts`, `ys`, `result`, `stats` and, with `SaveAt(dense=True)`, `evaluate(t)` and `derivative(t)`.
    `stats` has diffrax's `num_steps`, `num_accepted_steps`, `num_rejected_steps` and `max_steps`, and `num_evaluations` of
    the vector field (a lower bound for implicit solvers) and `t_reached`.

    Steps end on every breakpoint, where a kink of the solution reappears one delay later, up to the order of the solver, and
    never exceed the smallest constant delay. Works under `jit`, `vmap` (each lane with its own steps) and `grad`.
    """
    call = checked_call(
        term, solver, t0, t1, dt0, history, args, y0, saveat, stepsize_controller, adjoint,
        jump_ts, impulses, event, max_steps, memory, progress_meter,
    )  # fmt: skip
    try:
        solution, bad = _solve(call)
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        if isinstance(adjoint, ForwardMode):
            raise TypeError(
                "got forward-mode differentiation of a function with a jax.custom_vjp, which JAX can differentiate in "
                "reverse only: give the vector field (history, delay, condition) a jax.custom_jvp, or use jax.grad"
            ) from None
        raise TypeError(
            f"got forward-mode differentiation (jvp, jacfwd) with {type(adjoint).__name__}, which only runs in reverse: "
            "pass adjoint=lagrax.ForwardMode()"
        ) from None
    return _raise_if(bad, solution) if throw else solution


class Call(eqx.Module):
    """The arguments of `ddesolve`, checked. `state` is y(t0)."""

    term: DelayTerm
    t0: Any
    t1: Any
    dt0: Any
    args: PyTree
    jump_ts: Any
    impulses: Impulses | None
    history: Any
    state: PyTree[Array]
    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    adjoint: AbstractAdjoint
    saveat: dfx.SaveAt
    event: dfx.Event | None
    meter: dfx.AbstractProgressMeter
    y0_given: bool = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    memory: int | None = eqx.field(static=True)
    output: bool = eqx.field(static=True)
    """Whether states between mesh points are read."""

    @property
    def subs(self) -> list[dfx.SubSaveAt]:
        return _subs(self.saveat)


def checked_call(
    term, solver, t0, t1, dt0, history, args, y0, saveat, stepsize_controller, adjoint,
    jump_ts, impulses, event, max_steps, memory, progress_meter,
) -> Call:  # fmt: skip
    """The arguments of `ddesolve`, all but `throw`, after all that can be seen to be wrong with them was looked for."""
    check_kind(
        "term", term, DelayTerm, "pass lagrax.DelayTerm(vector_field, delays), or solve an ODE with diffrax.diffeqsolve"
    )
    check_kind("solver", solver, dfx.AbstractSolver, "pass a diffrax solver, such as diffrax.Tsit5()")
    check_kind("saveat", saveat, dfx.SaveAt, "pass diffrax.SaveAt(t1=True), or what else you want")
    check_kind("stepsize_controller", stepsize_controller, dfx.AbstractStepSizeController, "pass diffrax.PIDController(...)")
    check_kind("adjoint", adjoint, AbstractAdjoint, "pass one of lagrax's own, such as lagrax.DiscreteAdjoint()")
    check_lags(term.lags())
    check_times(t0, t1, dt0, saveat, UNLIMITED if max_steps is None and memory is not None else max_steps)
    check_jumps(jump_ts)
    if impulses is not None:
        check_impulses(impulses, t0, t1)
    check_steps(solver, stepsize_controller, dt0)
    if isinstance(history, dfx.Solution):
        check_continued(history, t0)
    term = expand(term, t0, t1)
    if isinstance(term.vector_field, WithIntegrals) and term.vector_field.chains:
        saveat, event = of_states(saveat, event)
    rows = rows_of(memory, term, dt0, saveat, event, stepsize_controller, impulses is not None)
    # Plain floats become arrays here: as they are, each new value would be compiled anew.
    times = with_arrays((t0, t1, dt0, args, jump_ts, impulses))
    past = history if callable(history) else with_arrays(history)
    state = initial_state(past, y0, times[0])
    term = prepared(term, state)
    return Call(
        with_arrays(term),
        *times,
        history=past,
        state=state,
        solver=solver,
        controller=stepsize_controller,
        adjoint=adjoint.prepared(t0, t1, term.lags()),
        saveat=saveat,
        event=event,
        meter=progress_meter,
        y0_given=y0 is not None,
        max_steps=UNLIMITED if max_steps is None else operator.index(max_steps),
        memory=rows,
        output=event is not None or adjoint.reads_output or _reads_output(term, t0, t1, saveat),
    )


@compiled
def _solve(call: Call) -> tuple[dfx.Solution, Bool[Array, ""]]:
    problem, setup = laid_out(call)
    wanted = [jnp.asarray(sub.ts, problem.t0.dtype) for sub in call.subs if sub.ts is not None]
    trajectory, ys = call.adjoint.solve(problem, setup, observed_times(call, problem))
    observed = jnp.split(ys, list(np.cumsum([len(ts) for ts in wanted])[:-1])) if wanted else []
    solution = _finish(trajectory, observed, problem, setup, call)
    return solution, failed(solution.result)


def laid_out(call: Call) -> tuple[Problem, Setup]:
    """The problem with its state laid out flat, and how to integrate it."""
    problem = _make_problem(call)
    keep = Keep(
        output=call.output,
        steps=call.event is not None or call.saveat.dense or any(_reads_steps(sub, call) for sub in call.subs),
        derivatives=any(lag.reads_slope for lag in problem.lags),
    )
    # A step has no derivative: what the mesh does is frozen.
    dt0 = None if call.dt0 is None else lax.stop_gradient(jnp.asarray(call.dt0, problem.t0.dtype))
    directions = None if call.event is None else call.event.direction
    setup = make_setup(call.solver, call.controller, dt0, call.max_steps, directions=directions, meter=call.meter, keep=keep)
    setup = dataclasses.replace(setup, memory=call.memory)
    call.adjoint.check(problem, setup, call.saveat)
    return (problem if call.memory is None else _with_output(problem, call)), setup


def observed_times(call: Call, problem: Problem) -> Float[Array, " times"]:
    """All of the `ts` at which something is saved, one list after the other."""
    wanted = [jnp.asarray(sub.ts, problem.t0.dtype) for sub in call.subs if sub.ts is not None]
    return jnp.concatenate([jnp.zeros(0, problem.t0.dtype), *wanted])


def _make_problem(call: Call) -> Problem:
    """The problem with its state laid out flat."""
    lags, structure = jax.tree.flatten(call.term.lags(), is_leaf=is_lag)
    planned = are_planned(lags)
    delays = [lag.delay for lag in lags] if planned else []
    network = network_of(lags, sum(leaf.size for leaf in jax.tree.leaves(call.state)))
    if network is not None:
        delays = jax.tree.leaves(eqx.filter(lags, eqx.is_inexact_array))
    dtype = time_dtype(call.state, call.t0, call.t1, call.dt0, *delays)
    time = lambda t: jnp.asarray(t, dtype)
    t0, args = time(call.t0), call.args
    jump_ts = jnp.sort(jnp.concatenate([time(ts).reshape(-1) for ts in declared(call.jump_ts, call.history)]))
    past = history_function(call.history)
    given = Given(call.term.delays, call.state, call.history, past, jump_ts, t0, args, call.solver, call.controller)
    state, history, sums, sound = with_integrals(call.term.vector_field, given)
    past = history_function(history)
    with jax.numpy_dtype_promotion("standard"):
        y0, unravel = ravel_pytree(state)
    whole = [state] * len(lags)
    delayed = jax.tree.unflatten(structure, whole if network is None else network.examples(whole))
    if sums is not None:
        delayed = (delayed, sums.trees(sums.at_start))
    check_vector_field(call.term.vector_field, t0, state, delayed, args)
    if past is not None and any(lag.reads_slope for lag in lags):
        check_history_slope(past, t0)
    problem = Problem(
        vector_field=with_closure(call.term.vector_field, t0, state, delayed, args),
        args=args,
        delays=jnp.stack([time(delay) for delay in delays]) if planned else jnp.zeros(0, dtype),
        history=ravel(history, y0.dtype) if past is None else with_closure(past, t0),
        y0=y0,
        t0=t0,
        t1=time(call.t1),
        jump_ts=jump_ts,
        events=None if call.event is None else convert_events(call.event, t0, state, args),
        history_end=lax.stop_gradient(known_until(call.history, dtype)),
        unravel=unravel,
        delay_structure=structure,
        may_jump=call.y0_given or past is not None,
        lags=() if planned else tuple(lags if network is not None else _converted(call.term, t0, call.state, args)),
        network=network,
        sums=sums,
        sound=sound,
        chained=state is not call.state,
    )
    if call.impulses is None or not len(call.impulses.ts):
        return problem
    if network is not None:
        raise ValueError(
            "got impulses with a large array of delays (Each), expected few or single delays: use fewer elements"
        )
    jump_ts, kicks = make_kicks(call.impulses, problem.jump_ts, t0, call.state, args)
    return dataclasses.replace(problem, jump_ts=jump_ts, kicks=kicks)


def _with_output(problem: Problem, call: Call) -> Problem:
    """With the function whose values are saved on the way, if it is one and returns numbers such as the state's."""
    saved = [sub for sub in call.subs if sub.ts is not None]
    if len(saved) != 1 or saved[0].fn is dfx.SubSaveAt(t1=True).fn:
        return problem
    state = problem.unravel(problem.y0)
    leaves = jax.tree.leaves(eqx.filter_eval_shape(saved[0].fn, problem.t0, state, call.args))
    if not leaves or any(getattr(leaf, "dtype", None) != problem.y0.dtype for leaf in leaves):
        return problem
    return dataclasses.replace(problem, output=with_closure(saved[0].fn, problem.t0, state, call.args))


def _converted(term: DelayTerm, t: Float[Array, ""], state: PyTree, args: PyTree) -> list[AbstractLag]:
    """The delays, with what their functions close over among their leaves."""
    converted = []
    for path, lag in jax.tree_util.tree_leaves_with_path(term.lags(), is_leaf=is_lag):
        check_lag_value(f"delays{jax.tree_util.keystr(path)}", lag, t, state, args)
        function = lag.function()
        if function is not None:
            lag = lag.with_function(with_closure(function, t, state, args))
        converted.append(lag)
    return converted


def _subs(saveat: dfx.SaveAt) -> list[dfx.SubSaveAt]:
    return jax.tree.leaves(saveat.subs, is_leaf=lambda x: isinstance(x, dfx.SubSaveAt))


def _reads_steps(sub: dfx.SubSaveAt, call: Call) -> bool:
    """Whether steps are read to save what is wanted. (The state at t0 may be kicked.)"""
    return sub.ts is not None or bool(sub.steps) or (sub.t0 and call.impulses is not None)


def _reads_output(term: DelayTerm, t0: Any, t1: Any, saveat: dfx.SaveAt) -> bool:
    """Whether any state between mesh points is read. The paper's image models (T = τ) look at nothing but their input:
    rows without interpolant take a fifth of the memory."""
    lags = jax.tree.leaves(term.lags(), is_leaf=is_lag)
    if not are_planned(lags):
        return True
    values = [concrete(t) for t in (t0, t1, *(lag.delay for lag in lags))]
    if saveat.dense or any(sub.ts is not None for sub in _subs(saveat)) or any(value is None for value in values):
        return True
    start, end, *delays = [float(value) for value in values if value is not None]
    return end - start > min(delays)


def _finish(
    trajectory: Trajectory, observed: list[Inexact[Array, "_ _"]], problem: Problem, setup: Setup, call: Call
) -> dfx.Solution:
    result = trajectory.result
    t_final, y_final = trajectory.t_end, trajectory.y_end
    saveat, args = call.saveat, call.args
    if call.event is not None:
        t_final, y_final, result = locate_event(call.event, problem, args, trajectory)
    for sub in call.subs:
        if sub.ts is not None:
            times: Array = sub.ts
            valid = jnp.all(times[1:] >= times[:-1]) & (times[0] >= problem.t0) & (times[-1] <= problem.t1)
            result = RESULTS.where(valid | failed(result), result, RESULTS.bad_ts)
    ts, ys = None, None
    if saveat.subs is not None:
        ts, ys = save(saveat, trajectory, observed, (t_final, y_final), problem, args, setup.max_steps)
    dense: Any = None
    if saveat.dense:
        given = (call.jump_ts, None if call.impulses is None else call.impulses.ts)
        declared = sum(np.size(leaf) for leaf in jax.tree.leaves(given))
        kinks = trajectory.sources.kinks(problem, t_final, KEPT_KINKS + declared)
        past: Any = trajectory.past
        dense = DenseSolution(past, problem, kinks, t_final)
    stats = {
        "num_steps": trajectory.attempts,
        "num_accepted_steps": trajectory.count,
        "num_rejected_steps": trajectory.attempts - trajectory.count,
        "max_steps": setup.max_steps,
        "num_evaluations": trajectory.evaluations,
        "t_reached": jax.lax.stop_gradient(t_final),
    }
    if call.memory is not None:
        stats |= {"memory": call.memory, "memory_needed": trajectory.memory_needed}
    return dfx.Solution(
        t0=problem.t0,
        t1=t_final,
        ts=ts,
        ys=ys,
        interpolation=dense,
        stats=stats,
        result=result,
        solver_state=None,
        controller_state=None,
        made_jump=None,
        event_mask=trajectory.event_mask if call.event is not None else None,
    )


def _raise_if(bad: Bool[Array, "..."], solution: dfx.Solution) -> dfx.Solution:
    """Raises with the time reached when that is known, else leaves a check in the traced program."""
    result: Any = solution.result
    results: Any = RESULTS
    if isinstance(bad, jax.core.Tracer) or bad.ndim:
        return result.error_if(solution, bad)
    if bad:
        message = results[result]
        reached = solution.stats["t_reached"]
        more = f" memory = {solution.stats['memory_needed']} would do." if result == RESULTS.memory_reached else ""
        raise eqx.EquinoxRuntimeError(f"{message} (The solve stopped at t = {reached}.{more})")
    return solution
