"""The forward loop: plan a step, look up the past, step, judge, write, until t1.

Two loops, one inside the other: between two breakpoints (a *segment*) the equation is smooth and nothing about breakpoints
changes, so the inner loop does steps only; the outer one passes the breakpoint at its end.

The loop is arranged so that XLA updates its buffers in place: within an iteration every read of `rows` comes after the
write (the delayed states of the *next* step are looked up last and carried over). A read that is not downstream of the
write makes XLA copy the whole buffer at every step.

Under `vmap` the loop runs until the slowest lane is done, and a finished lane only repeats a step that it does not keep:
nothing is selected over whole buffers.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Inexact, Int, PyTree

from ._breakpoints import (
    END,
    FROZEN,
    Segment,
    Sources,
    deepest_level,
    initial_sources,
    pass_breakpoint,
    segment_ahead,
)
from ._buffer import read_some, write
from ._compat import unvmap_any
from ._event import event_values, triggered
from ._history import (
    WINDOW,
    delayed_states,
    empty_rows,
    empty_starts,
    find_rows,
    make_row,
    query_times,
    read_rows,
    split_rows,
)
from ._neighbours import previous
from ._problem import Problem
from ._setup import Setup
from ._solution import RESULTS, failed
from ._step import Step, start_slope, take_step, with_output_error

SNAP = 0.01
"""A step that would end within this fraction of its length from a breakpoint or t1 ends there."""


class Plan(eqx.Module):
    """The next step, and what it will see of the past.

    `target` is where the step would end if there were no breakpoints; `links` and `delayed` are, for each stage and delay,
    the row it looks up and the state found there.
    """

    t_end: Float[Array, ""]
    target: Float[Array, ""]
    links: Int[Array, "nodes n"]
    delayed: Inexact[Array, "nodes n d"]


class Trajectory(eqx.Module):
    """The accepted steps and how they hang together: all that saving, events and adjoints work from.

    `rows` (rows, row), `starts` and `sources` are the loop's; an adjoint that keeps no steps leaves them out (None).
    `links[i]` holds, for step i, the row read at each node by each delay, the delays' breakpoint pointers, and what the
    time of the step's end depends on (`pass_breakpoint`): int32 of shape (steps, nodes n + n + 1), or None if not recorded.
    `slopes[i]` are those of its stages, one after another, or None.
    """

    rows: Any
    starts: Any
    links: Any
    slopes: Any
    sources: Any
    t_end: Float[Array, ""]
    y_end: Inexact[Array, " d"]
    count: Int[Array, ""]
    attempts: Int[Array, ""]
    evaluations: Int[Array, ""]
    result: RESULTS
    event_mask: PyTree


class Carry(eqx.Module):
    """The state of the loop. `slope` is the vector field at (t, y); `arrived` says that t is the end of the segment."""

    t: Float[Array, ""]
    y: Inexact[Array, " d"]
    slope: Inexact[Array, " d"]
    plan: Plan
    rows: Inexact[Array, "rows row"]
    starts: Float[Array, " starts"]
    links: Any
    slopes: Any
    count: Int[Array, ""]
    last: Int[Array, ""]
    """The last row that is not of length zero, as between breakpoints that coincide: those have no slope to be read."""
    attempts: Int[Array, ""]
    arrived: Bool[Array, ""]
    result: RESULTS
    controller_state: PyTree
    event_values: PyTree
    event_mask: PyTree
    meter_state: PyTree


def integrate(problem: Problem, setup: Setup) -> Trajectory:
    """Solves the problem. Differentiable in forward mode; `_adjoint` adds reverse mode."""
    sources = initial_sources(problem, setup.method.order)

    def running(state) -> Bool[Array, ""]:
        carry, _ = state
        return unvmap_any((carry.t < problem.t1) & _able(carry, setup))

    def cross(state):
        carry, sources, segment = _enter(*state, problem, setup)
        advance = lambda carry: _iterate(carry, segment, sources.pointers, problem, setup)
        return lax.while_loop(lambda carry: _inside(carry, setup), advance, carry), sources

    carry, sources = lax.while_loop(running, cross, (_start(problem, setup), sources))
    setup.meter.close(carry.meter_state)
    unfinished = (carry.t < problem.t1) & (carry.result == RESULTS.successful)
    return Trajectory(
        rows=carry.rows,
        starts=carry.starts,
        links=carry.links,
        slopes=carry.slopes,
        sources=sources,
        t_end=carry.t,
        y_end=carry.y,
        count=carry.count,
        attempts=carry.attempts,
        evaluations=_evaluations(carry, sources, setup),
        result=RESULTS.where(unfinished, RESULTS.max_steps_reached, carry.result),
        event_mask=carry.event_mask,
    )


def _inside(carry: Carry, setup: Setup) -> Bool[Array, ""]:
    """Whether any lane is still inside its segment."""
    return unvmap_any(~carry.arrived & _able(carry, setup))


def _able(carry: Carry, setup: Setup) -> Bool[Array, ""]:
    """Whether nothing forbids another attempt."""
    return (carry.result == RESULTS.successful) & (carry.attempts < setup.max_steps)


def _evaluations(carry: Carry, sources: Sources, setup: Setup) -> Int[Array, ""]:
    """How often the vector field was evaluated: at the start, to select the first step, and in the steps."""
    starts = sources.jumps + (0 if setup.method.reuses_last else carry.attempts)
    selecting = 2 if setup.dt0 is None and setup.adaptive else 0
    each = setup.method.stages - 1 + (setup.adaptive and setup.method.probe is not None)
    return 1 + selecting + carry.attempts * each + starts


def _start(problem: Problem, setup: Setup) -> Carry:
    method, n, nodes = setup.method, problem.delays.size, len(setup.method.nodes)
    zero = jnp.zeros((), jnp.int32)
    values = event_values(problem.events, problem.t0, problem.unravel(problem.y0), problem.args)
    mask = jax.tree.map(lambda value: value if value.dtype == bool else jnp.array(False), values)
    happened = jnp.any(jnp.stack([jnp.array(False), *jax.tree.leaves(mask)]))
    target, controller_state = _first_step(problem, setup)
    unknown = Plan(
        t_end=problem.t0,
        target=target,
        links=jnp.zeros((nodes, n), jnp.int32),
        delayed=jnp.zeros((nodes, n, problem.y0.size), problem.y0.dtype),
    )
    return Carry(
        t=problem.t0,
        y=problem.y0,
        slope=jnp.zeros_like(problem.y0),
        plan=unknown,
        rows=empty_rows(setup.max_steps, method, problem),
        starts=empty_starts(setup.max_steps, problem),
        links=jnp.zeros((setup.max_steps, nodes * n + n + 1), jnp.int32) if setup.record else None,
        slopes=_room_for_slopes(problem, setup),
        count=zero,
        last=zero,
        attempts=zero,
        arrived=jnp.array(False),
        result=_first_result(happened, problem, setup),
        controller_state=controller_state,
        event_values=values,
        event_mask=mask,
        meter_state=setup.meter.init(),
    )


def _room_for_slopes(problem: Problem, setup: Setup) -> Inexact[Array, "steps slopes"] | None:
    if not (setup.record and setup.keep_stages) or setup.method.implicit:
        return None
    return jnp.zeros((setup.max_steps, setup.method.stages * problem.y0.size), problem.y0.dtype)


def _first_result(happened: Bool[Array, ""], problem: Problem, setup: Setup) -> RESULTS:
    """Whether the problem can be solved at all, for values only known at run time, or an event has stopped it already."""
    delays, late = problem.delays, jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
    valid = {
        "bad_times": jnp.isfinite(problem.t0) & jnp.isfinite(problem.t1) & (problem.t1 > problem.t0),
        "bad_delay": jnp.all((delays > 0) & jnp.isfinite(delays)),
        "bad_precision": jnp.min(delays) >= 128 * jnp.finfo(delays.dtype).eps * late,
        "bad_jumps": jnp.all(problem.jump_ts == problem.jump_ts),
        "bad_history": problem.t0 <= problem.history_end,
        "bad_dt0": setup.dt0 is None or setup.dt0 > 0,
        "bad_state": jnp.all(jnp.isfinite(problem.y0)),
    }
    result: Any = RESULTS.where(happened, RESULTS.event_occurred, RESULTS.successful)
    for name, holds in reversed(valid.items()):
        result = RESULTS.where(jnp.asarray(holds), result, getattr(RESULTS, name))
    return result


def _first_step(problem: Problem, setup: Setup) -> tuple[Float[Array, ""], PyTree]:
    """The controller's first target and state. Before the first breakpoint the equation is an ordinary one."""

    def field(t, y, args):
        # The trial step may be longer than a delay; the history is not asked after t0, where it need not be defined.
        past = problem.initial_function(jnp.minimum(t - problem.delays, previous(problem.t0)))
        return problem.unravel(problem.field(t, ravel_pytree(y)[0], past))

    term = dfx.ODETerm(field)
    y0, func, order = problem.unravel(problem.y0), setup.solver.func, setup.solver.error_order(term)
    target, state = setup.controller.init(term, problem.t0, problem.t1, y0, setup.dt0, None, func, order)
    # A trial step into NaN says nothing: error control finds out from a short one.
    target = jnp.where(jnp.isnan(target), problem.t0 + 1e-6 * (problem.t1 - problem.t0), target)
    return lax.stop_gradient((jnp.asarray(target, problem.t0.dtype), jax.tree.map(jnp.asarray, state)))


def _plan(
    t, target, rows, starts, pointers: Int[Array, " n"], last, segment: Segment, problem: Problem, setup: Setup
) -> Plan:
    """Where the next step ends, and the delayed states that its stages will see."""
    method, delays = setup.method, problem.delays
    window = jnp.stack([read_some(starts, pointer, WINDOW) for pointer in jnp.unstack(pointers)])
    # All stages look into rows already written, and not past the window of rows that is searched.
    furthest = jnp.min(jnp.minimum(t, window[:, -1]) + delays)
    furthest = t + (furthest - t) / method.reach
    limit = jnp.minimum(segment.end, furthest)
    # Breakpoints and t1 carry gradient, ordinary mesh points do not.
    # A step too short for t to change would be taken for ever.
    target = jnp.maximum(target, t + 4 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(problem.t1)))
    t_end = lax.stop_gradient(jnp.where(target >= limit - SNAP * (target - t), limit, target))
    t_end = jnp.where(t_end == segment.end, segment.end, t_end)

    queries = query_times(method, t, t_end, delays)
    links = find_rows(window, pointers, queries, segment.sides, last)
    delayed = delayed_states(problem, method, queries, links, *split_rows(read_rows(rows, links)), segment.sides)
    return Plan(t_end, target, links, delayed)


def _iterate(carry: Carry, segment: Segment, reading: Int[Array, " n"], problem: Problem, setup: Setup) -> Carry:
    """One attempted step. A lane of a batch that has nothing to do repeats its step and does not keep it.

    `reading` are the delays' breakpoint pointers in this segment, recorded for the backward pass.
    """
    method, plan = setup.method, carry.plan
    active = ~carry.arrived & _able(carry, setup)
    step = take_step(setup.solver, method, problem, carry.t, plan.t_end, carry.y, carry.slope, plan.delayed)
    if setup.adaptive:
        step = with_output_error(step, method, problem, carry.t, plan.t_end, carry.y, plan.delayed)
    keep, target, controller_state, result = _judge(carry, step, problem, setup)
    keep = keep & active
    kept = lambda new, old: jnp.where(keep, new, old)

    row = make_row(method, carry.t, plan.t_end, carry.y, step.increments, carry.rows.dtype)
    rows = write(carry.rows, carry.count, row)
    starts = write(carry.starts, carry.count, lax.stop_gradient(carry.t))
    links, slopes = carry.links, carry.slopes
    if slopes is not None:
        slopes = write(slopes, carry.count, jnp.concatenate(step.slopes))
    if setup.record:
        depends_on = jnp.where(plan.t_end == problem.t1, END, FROZEN)
        link = jnp.concatenate([plan.links.reshape(-1), reading, depends_on[None]])
        links = write(links, carry.count, link)

    t, y, count = kept(plan.t_end, carry.t), kept(step.y_end, carry.y), carry.count + keep.astype(jnp.int32)
    values, mask, result = _watch(carry, keep, t, y, result, problem, setup)
    # The past is read forwards: the next step starts searching where this one last looked.
    pointers = jnp.maximum(kept(plan.links[method.last_node], plan.links[0]), 0)
    target = jnp.where(active, target, plan.target)
    last = jnp.where(keep & (plan.t_end > carry.t), carry.count, carry.last)
    next_plan = _plan(t, target, rows, starts, pointers, last, segment, problem, setup)
    slope = step.slope_end if method.reuses_last else start_slope(problem, t, y, next_plan.delayed)
    slope = kept(slope, carry.slope)
    result = RESULTS.where(keep & ~jnp.all(jnp.isfinite(slope)), RESULTS.field_nonfinite, result)
    waiting = lambda new, old: jax.tree.map(lambda a, b: jnp.where(active, a, b), new, old)
    return Carry(
        t=t,
        y=y,
        slope=slope,
        plan=next_plan,
        rows=rows,
        starts=starts,
        links=links,
        slopes=slopes,
        count=count,
        last=last,
        attempts=carry.attempts + active.astype(jnp.int32),
        arrived=carry.arrived | keep & (plan.t_end == segment.end),
        result=RESULTS.where(active, result, carry.result),
        controller_state=waiting(controller_state, carry.controller_state),
        event_values=values,
        event_mask=mask,
        meter_state=setup.meter.step(carry.meter_state, (t - problem.t0) / (problem.t1 - problem.t0)),
    )


def _enter(carry: Carry, old: Sources, problem: Problem, setup: Setup) -> tuple[Carry, Sources, Segment]:
    """Into the next segment: past the breakpoint that was reached, the lookups change side and the field may jump."""
    arrived = carry.arrived & (carry.t < problem.t1)
    passed, depends_on = pass_breakpoint(old, problem, deepest_level(setup.method.order, problem.delays.size))
    sources = jax.tree.map(lambda new, old: jnp.where(arrived, new, old), passed, old)
    segment = segment_ahead(sources, problem)
    links = carry.links
    if setup.record:
        # The time of the mesh point just reached depends on the delays as the breakpoint's does.
        last = (jnp.maximum(carry.count - 1, 0), jnp.int32(links.shape[1] - 1))
        depends_on = jnp.where(arrived, depends_on, links[last])
        links = lax.dynamic_update_slice(links, depends_on.reshape(1, 1), last)

    pointers = jnp.maximum(carry.plan.links[0], 0)
    plan = _plan(carry.t, carry.plan.target, carry.rows, carry.starts, pointers, carry.last, segment, problem, setup)
    # The carried slope is the limit from the left, and at t0 there is none yet.
    fresh = (sources.jumps > old.jumps) | (carry.attempts == 0)
    start = lambda: jnp.where(fresh, start_slope(problem, carry.t, carry.y, plan.delayed), carry.slope)
    slope = lax.cond(unvmap_any(fresh), start, lambda: carry.slope)
    broken = (carry.result == RESULTS.successful) & ~jnp.all(jnp.isfinite(slope))
    result = RESULTS.where(broken, RESULTS.field_nonfinite, carry.result)
    fields = lambda c: (c.links, c.plan, c.slope, c.result, c.arrived)
    updated = (links, plan, slope, result, carry.arrived & ~arrived)
    return eqx.tree_at(fields, carry, updated, is_leaf=lambda x: x is None), sources, segment


def _judge(carry: Carry, step: Step, problem: Problem, setup: Setup):
    """Asks the step size controller: (keep the step?, where the next one would end, its state, result)."""
    frozen = lambda tree: jax.tree.map(lax.stop_gradient, tree)
    t, t_end, y, y_end, error = frozen((carry.t, carry.plan.t_end, carry.y, step.y_end, step.error))
    estimate = None if error is None else problem.unravel(jnp.where(jnp.isnan(error), jnp.inf, error))
    order: Any = setup.solver.error_order(dfx.ODETerm(lambda t, y, args: y))
    keep, _, target, _, state, result = setup.controller.adapt_step_size(
        t, t_end, problem.unravel(y), problem.unravel(y_end), None, estimate, order, carry.controller_state
    )
    solved = step.result == dfx.RESULTS.successful
    keep = jnp.asarray(keep) & solved
    state, result = jax.tree.map(jnp.asarray, state), RESULTS.promote(result)
    if not setup.adaptive:
        result = RESULTS.where(solved, result, RESULTS.promote(step.result))
    # A step cut short by a breakpoint tells the controller nothing about the step it wanted: once kept, it goes on as if
    # never asked (which also exempts such steps from `dtmin`). With fixed steps the grid stays where it was.
    wanted = carry.plan.target
    skipped = keep & (wanted > t_end + SNAP * (wanted - t))
    target = jnp.where(skipped, t_end + (wanted - t) if setup.adaptive else wanted, target)
    state = jax.tree.map(lambda new, old: jnp.where(skipped, old, new), state, carry.controller_state)
    result = RESULTS.where(skipped, RESULTS.successful, result)
    stuck = ~keep & (target <= t + 4 * jnp.finfo(t.dtype).eps * jnp.abs(t))
    finite = jnp.array(True) if error is None else jnp.all(jnp.isfinite(error))
    result = RESULTS.where(stuck, RESULTS.where(finite, RESULTS.dt_min_reached, RESULTS.field_nonfinite), result)
    return keep, *frozen((jnp.asarray(target, t.dtype), state)), result


def _watch(carry: Carry, keep, t, y, result: RESULTS, problem: Problem, setup: Setup):
    """The events after this step: (values, which one stopped the solve, result)."""
    if not jax.tree.leaves(carry.event_values):
        return carry.event_values, carry.event_mask, result
    values = event_values(problem.events, t, problem.unravel(y), problem.args)
    mask = triggered(carry.event_values, values, setup.directions)
    mask = jax.tree.map(lambda new, old: jnp.where(keep, new, old), mask, carry.event_mask)
    happened = keep & jnp.any(jnp.stack(jax.tree.leaves(mask))) & ~failed(result)
    return values, mask, RESULTS.where(happened, RESULTS.event_occurred, result)
