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

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int, PyTree

from .._control import SNAP, Events, first_events, first_result, first_step, judge, kick, shortest_step, watch
from .._method._step import start_slope, take_step, turned, with_output_error
from .._past import Past, empty_past, make_row, row_end, split_rows
from .._problem import Problem
from .._results import RESULTS
from .._ring import Ends, Observed, Ring, empty_ring
from .._setup import Setup
from .._trajectory import END, FROZEN, Record, Trajectory
from .._xla._compat import unvmap_any
from ._breakpoints import (
    Segment,
    Sources,
    deepest_level,
    first_rows,
    initial_sources,
    next_is_declared,
    pass_breakpoint,
    segment_ahead,
)
from ._lookup import WINDOW, delayed_states, find_rows, query_times, search_window


class Plan(eqx.Module):
    """The next step, and what it will see of the past.

    `target` is where the step would end if there were no breakpoints; `links` and `delayed` are, for each stage and delay,
    the row it looks up and the state found there.
    """

    t_end: Float[Array, ""]
    target: Float[Array, ""]
    links: Int[Array, "nodes n"]
    delayed: Inexact[Array, "nodes n d"]


class Carry(eqx.Module):
    """The state of the loop. `slope` is the vector field at (t, y); `arrived` says that t is the end of the segment."""

    t: Float[Array, ""]
    y: Inexact[Array, " d"]
    slope: Inexact[Array, " d"]
    plan: Plan
    past: Past | Ring
    record: Record | Ends | None
    attempts: Int[Array, ""]
    arrived: Bool[Array, ""]
    result: RESULTS
    controller_state: PyTree
    events: Events
    meter_state: PyTree
    observed: Observed | None = None
    """What is written down at once because the past is bounded (`_bounded.py`)."""


def integrate(problem: Problem, setup: Setup) -> Trajectory:
    """Solves the problem. Differentiable in forward mode; `_adjoint` adds reverse mode."""
    sources = initial_sources(problem, setup.method.order, setup.max_steps)
    carry, sources = pass_breakpoints(start_loop(problem, setup), sources, problem, setup)
    setup.meter.close(carry.meter_state)
    unfinished = (carry.t < problem.t1) & (carry.result == RESULTS.successful)
    return Trajectory(
        past=carry.past,
        record=_completed(carry, sources, problem, setup),
        sources=sources,
        t_end=carry.t,
        y_end=carry.y,
        count=carry.past.count,
        attempts=carry.attempts,
        evaluations=evaluations_of(carry, sources, setup),
        result=RESULTS.where(unfinished, RESULTS.max_steps_reached, carry.result),
        event_mask=carry.events.mask,
    )


def pass_breakpoints(carry: Carry, sources: Sources, problem: Problem, setup: Setup) -> tuple[Carry, Sources]:
    """From one breakpoint to the next until t1, or until something forbids another attempt."""

    def running(state) -> Bool[Array, ""]:
        carry, _ = state
        return unvmap_any((carry.t < problem.t1) & _able(carry, setup))

    def cross(state):
        carry, sources, segment = _enter(*state, problem, setup)
        advance = lambda carry: _iterate(carry, segment, sources.pointers, problem, setup)
        return lax.while_loop(lambda carry: _inside(carry, setup), advance, carry), sources

    return lax.while_loop(running, cross, (carry, sources))


def _inside(carry: Carry, setup: Setup) -> Bool[Array, ""]:
    """Whether any lane is still inside its segment."""
    return unvmap_any(~carry.arrived & _able(carry, setup))


def _able(carry: Carry, setup: Setup) -> Bool[Array, ""]:
    """Whether nothing forbids another attempt."""
    able = (carry.result == RESULTS.successful) & (carry.attempts < setup.max_steps)
    return able if carry.observed is None else able & (carry.past.count < carry.observed.limit)


def _completed(carry: Carry, sources: Sources, problem: Problem, setup: Setup) -> Any:
    """The record. A breakpoint at which an event stopped the solve was not passed, but moves the last step's end as others
    do (`_enter`)."""
    if not isinstance(carry.record, Record) or problem.events is None:
        return carry.record
    _, depends_on = pass_breakpoint(sources, problem, deepest_level(setup.method.order, problem.delays.size))
    last = jnp.maximum(carry.past.count - 1, 0)
    return carry.record.with_dependence(last, depends_on, carry.arrived & (carry.t < problem.t1))


def evaluations_of(carry: Carry, sources: Sources, setup: Setup) -> Int[Array, ""]:
    """How often the vector field was evaluated: at the start, to select the first step, and in the steps."""
    starts = sources.jumps + (0 if setup.method.reuses_last else carry.attempts)
    selecting = 2 if setup.dt0 is None and setup.adaptive else 0
    each = setup.method.stages - 1 + (setup.adaptive and setup.method.probe is not None)
    return 1 + selecting + carry.attempts * each + starts


def start_loop(problem: Problem, setup: Setup) -> Carry:
    n, nodes = problem.delays.size, len(setup.method.nodes)
    events, ended = first_events(problem)
    target, controller_state = first_step(problem, setup)
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
        past=_empty_past(problem, setup),
        record=_empty_record(problem, setup) if setup.keep.record else None,
        attempts=jnp.zeros((), jnp.int32),
        arrived=jnp.array(False),
        result=first_result(ended, problem, setup, _conditions(problem)),
        controller_state=controller_state,
        events=events,
        meter_state=setup.meter.init(),
    )


def _empty_past(problem: Problem, setup: Setup) -> Past | Ring:
    if setup.memory is None:
        return empty_past(setup.max_steps, setup.method, problem, spare=WINDOW)
    return empty_ring(setup.memory, setup.room if setup.keep.record else None, setup.method, problem, WINDOW)


def _empty_record(problem: Problem, setup: Setup) -> Record | Ends:
    method, n = setup.method, problem.delays.size
    steps = setup.max_steps + 1  # as many as there are rows
    if setup.memory is not None:
        return Ends(jnp.zeros((setup.room, n + 1), jnp.int32))
    links = jnp.zeros((steps, len(method.nodes) * n + n + 1), jnp.int32)
    if not setup.keep.slopes or method.implicit:
        return Record(links, None, n)
    return Record(links, jnp.zeros((steps, method.stages * problem.y0.size), problem.y0.dtype), n)


def _conditions(problem: Problem) -> dict[str, Bool[Array, ""]]:
    delays, late = problem.delays, jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
    return {
        "bad_delay": jnp.all((delays > 0) & jnp.isfinite(delays)),
        "bad_precision": jnp.min(delays) >= 128 * jnp.finfo(delays.dtype).eps * late,
    }


def _plan(
    t, target, past: Past | Ring, pointers: Int[Array, " n"], segment: Segment, problem: Problem, setup: Setup
) -> Plan:
    """Where the next step ends, and the delayed states that its stages will see."""
    method, delays = setup.method, problem.delays
    shortest = shortest_step(t, problem)
    ahead = lambda pointers: jnp.stack([past.ahead(pointer, WINDOW) for pointer in jnp.unstack(pointers)])
    pointers, window = search_window(ahead, pointers, (t, segment.end), problem, segment.sides, shortest)
    # All stages look into rows already written, and not past the window of rows that is searched.
    furthest = jnp.min(jnp.minimum(t, window[:, -1]) + delays)
    furthest = t + (furthest - t) / method.reach
    # What rounding leaves before a breakpoint is no step: the row would have a length of few floats, and no curvature.
    limit = jnp.where(furthest + shortest < segment.end, furthest, segment.end)
    # Breakpoints and t1 carry gradient, ordinary mesh points do not.
    target = jnp.maximum(target, t + shortest)
    t_end = lax.stop_gradient(jnp.where(target >= limit - SNAP * (target - t), limit, target))
    t_end = jnp.where(t_end == segment.end, segment.end, t_end)

    queries = query_times(method, t, t_end, delays)
    links = find_rows(window, pointers, queries, segment.sides, past.last)
    delayed = delayed_states(problem, method, queries, links, *split_rows(past.read(links)), segment.sides)
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
    keep, target, controller_state, result = judge(
        carry.t, plan.t_end, plan.target, carry.y, step, carry.controller_state, problem, setup
    )
    keep = keep & active
    kept = lambda new, old: jnp.where(keep, new, old)

    row = make_row(method, carry.t, plan.t_end, carry.y, step.increments, carry.past.rows.dtype)
    past, record = carry.past.append(row, carry.t, plan.t_end, keep), carry.record
    if record is not None:
        depends_on = jnp.where(plan.t_end == problem.t1, END, FROZEN)
        record = record.write(carry.past.count, plan.links, reading, depends_on, step.slopes)

    t, y = kept(plan.t_end, carry.t), kept(step.y_end, carry.y)
    events, result = watch(carry.events, keep, t, y, result, problem, setup)
    # The past is read forwards: the next step starts searching where this one last looked.
    pointers = jnp.maximum(kept(plan.links[method.last_node], plan.links[0]), 0)
    target = jnp.where(active, target, plan.target)
    next_plan = _plan(t, target, past, pointers, segment, problem, setup)
    slope = step.slope_end if method.reuses_last else start_slope(problem, t, y, next_plan.delayed)
    slope = kept(slope, carry.slope)
    result = RESULTS.where(keep & ~jnp.all(jnp.isfinite(slope)), RESULTS.field_nonfinite, result)
    observed = carry.observed
    if observed is not None:
        observed, result = _bounded(observed, row, keep, past, next_plan, result, problem)
    waiting = lambda new, old: jax.tree.map(lambda a, b: jnp.where(active, a, b), new, old)
    return Carry(
        t=t,
        y=y,
        slope=slope,
        plan=next_plan,
        past=past,
        record=record,
        attempts=carry.attempts + active.astype(jnp.int32),
        arrived=carry.arrived | keep & (plan.t_end == segment.end),
        result=RESULTS.where(active, result, carry.result),
        controller_state=waiting(controller_state, carry.controller_state),
        events=events,
        meter_state=setup.meter.step(carry.meter_state, (t - problem.t0) / (problem.t1 - problem.t0)),
        observed=observed,
    )


def _bounded(observed: Observed, row, keep, past: Any, plan: Plan, result, problem: Problem):
    """(What was observed up to now, the result): the next step must not overwrite a row that is still looked up."""
    needed = past.count - jnp.min(jnp.maximum(plan.links[0], 0))
    observed = eqx.tree_at(lambda o: o.used, observed, jnp.maximum(observed.used, needed + 1))
    full = keep & (needed >= len(past.rows)) & (row_end(row) < problem.t1)
    return observed.after(row, keep, problem), RESULTS.where(full, RESULTS.memory_reached, result)


def _kicked(carry: Carry, arrived, sources: Sources, problem: Problem, setup: Setup) -> Carry:
    """Behind the kick at t, if there is one."""
    due = arrived & next_is_declared(sources, problem)
    after = kick(sources.next_jump, due, carry.t, carry.y, carry.events, carry.result, problem, setup)
    return eqx.tree_at(lambda c: (c.y, c.events, c.result), carry, after[:3])


def _enter(carry: Carry, old: Sources, problem: Problem, setup: Setup) -> tuple[Carry, Sources, Segment]:
    """Into the next segment: past the breakpoint that was reached, the lookups change side and the field may jump."""
    arrived = carry.arrived & (carry.t < problem.t1)
    if problem.kicks is not None:
        # A lane of a batch that an event has stopped here, before a kick, stays before it.
        arrived = arrived & _able(carry, setup)
        carry = _kicked(carry, arrived, old, problem, setup)
    deepest = deepest_level(setup.method.order, problem.delays.size)
    sources, depends_on = pass_breakpoint(old, problem, deepest, arrived, carry.past.count)
    segment = segment_ahead(sources, problem)
    record = carry.record
    if record is not None:
        # The time of the mesh point just reached depends on the delays as the breakpoint's does.
        record = record.with_dependence(jnp.maximum(carry.past.count - 1, 0), depends_on, arrived)

    # (Rows of length zero, as many as there are delays, might fill the window of rows that is searched.)
    pointers = jnp.maximum(carry.plan.links[0], first_rows(sources, sources.pointers))
    plan = _plan(carry.t, carry.plan.target, carry.past, pointers, segment, problem, setup)
    # The carried slope is the limit from the left, and at t0 there is none yet.
    fresh = (sources.jumps > old.jumps) | (carry.attempts == 0)
    inputs = (problem, carry.t, carry.y, plan.delayed)
    carried = lambda: turned(carry.slope, inputs)
    slope = lax.cond(unvmap_any(fresh), lambda: jnp.where(fresh, start_slope(*inputs), carried()), carried)
    broken = (carry.result == RESULTS.successful) & ~jnp.all(jnp.isfinite(slope))
    result = RESULTS.where(broken, RESULTS.field_nonfinite, carry.result)
    fields = lambda c: (c.record, c.plan, c.slope, c.result, c.arrived)
    updated = (record, plan, slope, result, carry.arrived & ~arrived)
    return eqx.tree_at(fields, carry, updated, is_leaf=lambda x: x is None), sources, segment
