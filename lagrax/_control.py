"""What every loop asks while it advances: how long the first step is, whether a step is good, whether an event happened."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Inexact, Int, PyTree

from ._method._step import Step
from ._output._event import event_values, stopped_by, triggered
from ._problem import Problem
from ._results import RESULTS, failed
from ._setup import Setup
from ._xla._neighbours import previous

SNAP = 0.01
"""A step that would end within this fraction of its length from a breakpoint or t1 ends there."""


class Events(eqx.Module):
    """The conditions' values at the last mesh point, and which of them stopped the solve."""

    values: PyTree
    mask: PyTree


def first_events(problem: Problem) -> tuple[Events, RESULTS]:
    """(The events at t0, whether one of them stops the solve already)."""
    values = event_values(problem.events, problem.t0, problem.unravel(problem.y0), problem.args)
    mask = jax.tree.map(lambda value: value if value.dtype == bool else jnp.array(False), values)
    return Events(values, mask), stopped_by(values, mask)


def watch(events: Events, keep, t, y, result: RESULTS, problem: Problem, setup: Setup) -> tuple[Events, RESULTS]:
    """The events after a step, and the result if one happened."""
    if not jax.tree.leaves(events.values):
        return events, result
    values = event_values(problem.events, t, problem.unravel(y), problem.args)
    mask = triggered(events.values, values, setup.directions)
    mask = jax.tree.map(lambda new, old: jnp.where(keep, new, old), mask, events.mask)
    return Events(values, mask), RESULTS.where(keep & ~failed(result), stopped_by(values, mask), result)


def kick(jump: Int[Array, ""], due, t, y, events: Events, result: RESULTS, problem: Problem, setup: Setup):
    """(The state, events and result behind declared jump number `jump`, if it is `due`; whether the state was kicked). A
    solve that an event, or a failure, has stopped is not kicked any more."""
    happens = due & problem.kicks.are(jump) & (result == RESULTS.successful)
    after = problem.kicked(jnp.where(happens, jump, -1), t, y)
    broken = happens & ~jnp.all(jnp.isfinite(after))
    events, result = watch(events, happens, t, after, RESULTS.where(broken, RESULTS.bad_kick, result), problem, setup)
    return after, events, result, happens


def first_result(result: RESULTS, problem: Problem, setup: Setup, further: dict[str, Any]) -> RESULTS:
    """`result` if the problem can be solved at all, or why it cannot, for values only known at run time.

    `further` are conditions that must hold besides those of every problem, by the name of the result if they do not.
    """
    valid = {
        "bad_times": jnp.isfinite(problem.t0) & jnp.isfinite(problem.t1) & (problem.t1 > problem.t0),
        **further,
        **_impulse_conditions(problem),
        "bad_jumps": jnp.all(problem.jump_ts == problem.jump_ts),
        "bad_history": problem.t0 <= problem.history_end,
        "bad_dt0": setup.dt0 is None or setup.dt0 > 0,
        "bad_state": jnp.all(jnp.isfinite(problem.y0)),
        "bad_integral": problem.sound is None or problem.sound,
    }
    for name, holds in reversed(valid.items()):
        result = RESULTS.where(jnp.asarray(holds), result, getattr(RESULTS, name))
    return result


def _impulse_conditions(problem: Problem) -> dict[str, Any]:
    if problem.kicks is None:
        return {}
    return {"bad_impulses": problem.kicks.in_order(problem.jump_ts, problem.t0, problem.t1)}


def first_step(problem: Problem, setup: Setup, delayed: Callable | None = None) -> tuple[Float[Array, ""], PyTree]:
    """The controller's first target and state. Before the first breakpoint the equation is an ordinary one.

    `delayed(t, y)` is what the field sees of the history; by default whole states.
    """

    def field(t, y, args):
        # The trial step may be longer than a delay; the history is not asked after t0, where it need not be defined.
        flat = ravel_pytree(y)[0].astype(problem.y0.dtype)
        if delayed is None:
            past = problem.initial_delayed(jnp.minimum(problem.looked_up(t, flat), previous(problem.t0)))
        else:
            past = delayed(t, flat)
        if problem.sums is not None:
            past = (past, problem.sums.at_start)
        return at_least_as_time(problem.unravel(problem.field(t, flat, past)))

    # (diffrax selects a first step in the precision of time, which may be more than that of the state.)
    at_least_as_time = lambda tree: jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, problem.t0.dtype)), tree)
    term = dfx.ODETerm(field)
    y0, func, order = at_least_as_time(problem.unravel(problem.y0)), setup.solver.func, setup.solver.error_order(term)
    target, state = setup.controller.init(term, problem.t0, problem.t1, y0, setup.dt0, None, func, order)
    # A trial step into NaN says nothing: error control finds out from a short one.
    target = jnp.where(jnp.isnan(target), problem.t0 + 1e-6 * (problem.t1 - problem.t0), target)
    return lax.stop_gradient((jnp.asarray(target, problem.t0.dtype), jax.tree.map(jnp.asarray, state)))


def judge(t, t_end, wanted, y: Inexact[Array, " d"], step: Step, old_state: PyTree, problem: Problem, setup: Setup):
    """Asks the step size controller about a step from (t, y) to t_end that would have ended at `wanted` if nothing had cut
    it short: (keep it?, where the next one would end, the controller's state, result)."""
    frozen = lambda tree: jax.tree.map(lax.stop_gradient, tree)
    t, t_end, y, y_end, error = frozen((t, t_end, y, step.y_end, step.error))
    estimate = None if error is None else problem.unravel(jnp.where(jnp.isnan(error), jnp.inf, error))
    # (A state that is not finite would make the next target NaN.)
    reached = jnp.where(jnp.isfinite(y_end), y_end, y)
    order: Any = setup.solver.error_order(dfx.ODETerm(lambda t, y, args: y))
    keep, _, target, _, state, result = setup.controller.adapt_step_size(
        t, t_end, problem.unravel(y), problem.unravel(reached), None, estimate, order, old_state
    )
    solved = step.result == dfx.RESULTS.successful
    keep = jnp.asarray(keep) & solved
    state, result = jax.tree.map(jnp.asarray, state), RESULTS.promote(result)
    if not setup.adaptive:
        # Error control would not keep a step into NaN either.
        finite = jnp.all(jnp.isfinite(y_end))
        keep = keep & finite
        result = RESULTS.where(finite, result, RESULTS.field_nonfinite)
        result = RESULTS.where(solved, result, RESULTS.promote(step.result))
    # A step cut short by a breakpoint tells the controller nothing about the step it wanted: once kept, it goes on as if
    # never asked (which also exempts such steps from `dtmin`). With fixed steps the grid stays where it was.
    skipped = keep & (wanted > t_end + SNAP * (wanted - t))
    target = jnp.where(skipped, t_end + (wanted - t) if setup.adaptive else wanted, target)
    state = jax.tree.map(lambda new, old: jnp.where(skipped, old, new), state, old_state)
    result = RESULTS.where(skipped, RESULTS.successful, result)
    stuck = ~keep & (target <= t + 4 * jnp.finfo(t.dtype).eps * jnp.abs(t))
    finite = jnp.array(True) if error is None else jnp.all(jnp.isfinite(error))
    result = RESULTS.where(stuck, RESULTS.where(finite, RESULTS.dt_min_reached, RESULTS.field_nonfinite), result)
    return keep, *frozen((jnp.asarray(target, t.dtype), state)), result


def shortest_step(t: Float[Array, ""], problem: Problem) -> Float[Array, ""]:
    """What is added to t at least: a step too short for t to change would be taken for ever."""
    return 4 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(problem.t1))


def tolerance(y: Inexact[Array, " d"], setup: Setup) -> Float[Array, " d"]:
    """The error that a step may make; with fixed steps, what rounding leaves."""
    controller: Any = setup.controller
    size = jnp.abs(y)
    if not (hasattr(controller, "rtol") and hasattr(controller, "atol")):
        eps = jnp.finfo(size.dtype).eps
        return 1e4 * eps * jnp.maximum(size, jnp.max(size) + eps)
    least = lambda x: jnp.min(jnp.stack([jnp.min(jnp.asarray(leaf, size.dtype)) for leaf in jax.tree.leaves(x)]))
    return least(controller.atol) + least(controller.rtol) * size
