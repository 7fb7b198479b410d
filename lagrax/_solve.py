"""`ddesolve`: check the input, lay the problem out flat, integrate, save."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Inexact, PyTree

from ._adjoint import AbstractAdjoint, DiscreteAdjoint, ForwardMode
from ._call import Call, checked_call
from ._given import kept_kinks
from ._impulses import Impulses
from ._layout import laid_out, observed_times
from ._output._dense import DenseSolution
from ._output._event import locate_event
from ._output._save import save
from ._problem import Problem
from ._results import RESULTS, failed
from ._setup import Setup
from ._term import DelayTerm
from ._trajectory import Trajectory
from ._xla._compiled import compiled


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
    the vector field (a lower bound for implicit solvers), `num_stages` of a step and `t_reached`.

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
        if not str(error).startswith("can't apply forward-mode"):
            raise
        raise _about_forward_mode(adjoint) from None
    return _raise_if(bad, solution) if throw else solution


def _about_forward_mode(adjoint: AbstractAdjoint) -> TypeError:
    """What to do about it, where JAX refuses to differentiate forwards."""
    if isinstance(adjoint, ForwardMode):
        return TypeError(
            "got forward-mode differentiation of a function with a jax.custom_vjp, which JAX can differentiate in "
            "reverse only: give the vector field (history, delay, condition) a jax.custom_jvp, or use jax.grad"
        )
    return TypeError(
        f"got forward-mode differentiation (jvp, jacfwd) with {type(adjoint).__name__}, which only runs in reverse: "
        "pass adjoint=lagrax.ForwardMode()"
    )


@compiled
def _solve(call: Call) -> tuple[dfx.Solution, Bool[Array, ""]]:
    problem, setup = laid_out(call)
    wanted = [jnp.asarray(sub.ts, problem.t0.dtype) for sub in call.subs if sub.ts is not None]
    trajectory, ys = call.adjoint.solve(problem, setup, observed_times(call, problem))
    observed = jnp.split(ys, list(np.cumsum([len(ts) for ts in wanted])[:-1])) if wanted else []
    solution = _finish(trajectory, observed, problem, setup, call)
    return solution, failed(solution.result)


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
        jumps = (call.jump_ts, None if call.impulses is None else call.impulses.ts)
        kinks, levels = trajectory.sources.kinks(problem, t_final, kept_kinks(call.history, call.y0_given, jumps))
        past: Any = trajectory.past
        dense = DenseSolution(past, problem, kinks, levels, t_final)
    stats = {
        "num_steps": trajectory.attempts,
        "num_accepted_steps": trajectory.count,
        "num_rejected_steps": trajectory.attempts - trajectory.count,
        "max_steps": setup.max_steps,
        "num_evaluations": trajectory.evaluations,
        "num_stages": setup.method.stages,
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
