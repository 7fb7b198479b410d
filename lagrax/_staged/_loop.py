"""The forward loop for delays that move, vanish or are shorter than a step: look up while stepping.

One loop of attempts. Most end as a planned step does (`_planned/_loop.py`): the controller keeps the step or asks for a
shorter one. If a lag left its piece of the past on the way, the step is taken again to end there (the controller is not
told), and is left at the breakpoint.

The row of an accepted step is written at the *start* of the next iteration: within an iteration every read of the rows then
comes after the write, so that XLA updates them in place. Written where it is found, after the stages have read others, the
whole buffer would be copied at every step.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int, PyTree

from .._control import SNAP, Events, first_events, first_result, first_step, judge, kick, shortest_step, tolerance, watch
from .._method._step import Step
from .._past import Past, empty_past, row_start, split_rows, state_at
from .._planned._breakpoints import declared_level, deepest_level
from .._problem import Problem
from .._results import RESULTS
from .._setup import Setup
from .._trajectory import DECLARED, END, FROZEN, Trajectory
from .._xla._buffer import read, write
from .._xla._compat import unvmap_any
from .._xla._fold import any_of
from .._xla._neighbours import just_after
from ._broken import with_broken_lags
from ._crossing import BEYOND, TINY, Crossing, first_crossing, landing_time
from ._lookup import View, frozen, look_back, slack_of, slope_flags
from ._record import Note, Record, empty_record
from ._sources import Entry, Sources, initial_sources, next_echo, next_stop, pass_end, seat
from ._sweep import Start, Sweep, continued, start_at, take_sweeps


class Carry(eqx.Module):
    """The state of the loop.

    `pending` is the row of the last accepted step, number `past.count - 1`, still to be written, and `entry` the source that
    it ended on. `target` is where the next
    step would end if nothing stopped it, `clip` where it is to end because of a breakpoint found on the way (∞ if none).
    `fresh` says that t is a breakpoint, so that the slope carried along is not that of the next step; `unseated` that lags
    may look somewhere else altogether, at t0 and behind declared jumps.
    """

    start: Start
    past: Past
    pending: Inexact[Array, " row"]
    sources: Sources
    entry: Entry
    record: Record | None
    target: Float[Array, ""]
    clip: Float[Array, ""]
    fresh: Bool[Array, ""]
    unseated: Bool[Array, ""]
    attempts: Int[Array, ""]
    evaluations: Int[Array, ""]
    result: RESULTS
    controller_state: PyTree
    events: Events
    meter_state: PyTree


def integrate(problem: Problem, setup: Setup) -> Trajectory:
    """Solves the problem. Differentiable in forward mode; `_walk_back.py` adds reverse mode."""
    running = lambda carry: unvmap_any(_active(carry, problem, setup))
    carry = lax.while_loop(running, lambda carry: _attempt(carry, problem, setup), _begin(problem, setup))
    setup.meter.close(carry.meter_state)
    unfinished = (carry.start.t < problem.t1) & (carry.result == RESULTS.successful)
    past = _written(carry)
    return Trajectory(
        past=past,
        record=carry.record,
        sources=carry.sources.written(carry.entry),
        t_end=carry.start.t,
        y_end=carry.start.y,
        count=past.count,
        attempts=carry.attempts,
        evaluations=carry.evaluations,
        result=RESULTS.where(unfinished, RESULTS.max_steps_reached, carry.result),
        event_mask=carry.events.mask,
    )


def _active(carry: Carry, problem: Problem, setup: Setup) -> Bool[Array, ""]:
    able = (carry.result == RESULTS.successful) & (carry.attempts < setup.max_steps)
    return able & (carry.start.t < problem.t1)


def _begin(problem: Problem, setup: Setup) -> Carry:
    n, zero = len(problem.lags), jnp.zeros((), jnp.int32)
    events, ended = first_events(problem)
    target, controller_state = first_step(problem, setup)
    past = empty_past(setup.max_steps, setup.method, problem, spare=1)
    sources = initial_sources(problem, setup.max_steps)
    nowhere = jnp.zeros(n, jnp.int32)
    return Carry(
        start=Start(problem.t0, problem.y0, jnp.zeros_like(problem.y0), nowhere, nowhere),
        past=past,
        pending=jnp.zeros_like(past.rows[0]),
        sources=sources,
        entry=sources.read(sources.start),
        record=empty_record(problem, setup.method, setup.max_steps + 1) if setup.keep.record else None,
        target=target,
        clip=jnp.full_like(target, jnp.inf),
        fresh=jnp.array(True),
        unseated=jnp.array(True),
        attempts=zero,
        evaluations=zero + (2 if setup.dt0 is None and setup.adaptive else 0),
        result=first_result(ended, problem, setup, _conditions(problem)),
        controller_state=controller_state,
        events=events,
        meter_state=setup.meter.init(),
    )


def _conditions(problem: Problem) -> dict[str, Bool[Array, ""]]:
    """What is known of the delays before the first step: those that steps must not exceed are positive."""
    shortest = _shortest(problem)
    late = jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
    return {
        "bad_delay": shortest > 0,
        "bad_precision": ~(shortest < 128 * jnp.finfo(late.dtype).eps * late),
    }


def _shortest(problem: Problem) -> Float[Array, ""]:
    """The least of the delays that steps must not exceed, as far as they are known in advance; ∞ if there is none."""
    lengths = [jnp.asarray(lag.shortest(), problem.t0.dtype) for lag in problem.lags if not lag.overlaps]
    lengths += [] if problem.sums is None else [problem.sums.longest_step]
    return lax.stop_gradient(jnp.min(jnp.stack([jnp.full((), jnp.inf, problem.t0.dtype), *lengths])))


def _written(carry: Carry) -> Past:
    """The past with the last accepted step in it."""
    past, number = carry.past, jnp.maximum(carry.past.count - 1, 0)
    start = jnp.where(past.count > 0, lax.stop_gradient(split_rows(carry.pending)[0][0]), jnp.inf)
    written = (write(past.rows, number, carry.pending), write(past.starts, number, start))
    return eqx.tree_at(lambda p: (p.rows, p.starts), past, written)


class End(eqx.Module):
    """Where a step ends, whether that is a declared jump, and whether it `stops` there: at a jump or t1, both of which carry
    derivatives."""

    t: Float[Array, ""]
    at_jump: Bool[Array, ""]
    stops: Bool[Array, ""]


class Verdict(eqx.Module):
    """What becomes of an attempted step: whether it is kept and left at (t, y), there because it `lands` on a breakpoint or
    because it `jumps` at a declared one; what comes next."""

    keep: Bool[Array, ""]
    lands: Bool[Array, ""]
    jumps: Bool[Array, ""]
    t: Float[Array, ""]
    y: Inexact[Array, " d"]
    target: Float[Array, ""]
    clip: Float[Array, ""]
    controller_state: PyTree
    result: RESULTS


def _attempt(carry: Carry, problem: Problem, setup: Setup) -> Carry:
    """One attempted step. A lane of a batch that has nothing to do repeats its step and does not keep it."""
    active = _active(carry, problem, setup)
    past = _written(carry)
    sources = _seated(carry, carry.sources.written(carry.entry), problem)
    view = look_back(past, sources, carry.start.t, problem)
    start, evaluations = _refreshed(carry, view, problem, setup)
    end = _end(carry, sources, problem, setup)
    sweep = _step(carry, sources, start, view, end.t, problem, setup)
    crossing = _crossing(problem, view, sweep, end)
    verdict = _verdict(carry, active, start, sweep, crossing, sources, end, problem, setup)
    new_sources, entry, parent = _passed(sources, crossing, verdict, past.count + 1, problem, setup)

    kept = lambda new, old: jax.tree.map(lambda a, b: jnp.where(verdict.keep, a, b), new, old)
    after = Start(verdict.t, verdict.y, sweep.slope_end, sweep.links[setup.method.end], _guesses(sweep, past))
    following = kept(after, start)
    events, result = watch(carry.events, verdict.keep, following.t, following.y, verdict.result, problem, setup)
    if problem.kicks is not None:
        jump, due = sources.next_jump, verdict.jumps
        y, events, result, kicked = kick(jump, due, following.t, following.y, events, result, problem, setup)
        following = eqx.tree_at(lambda s: s.y, following, y)
        # Before a kick that does not happen any more, because an event was first, the solve ends on no declared time.
        end = eqx.tree_at(lambda e: e.stops, end, end.stops & ~(due & problem.kicks.are(jump) & ~kicked))
    waiting = lambda new, old: jnp.where(active, new, old)
    return Carry(
        start=following,
        past=eqx.tree_at(lambda p: p.count, past, past.count + verdict.keep.astype(jnp.int32)),
        pending=kept(sweep.row, carry.pending),
        sources=new_sources,
        entry=entry,
        record=_noted(carry.record, past.count, sweep, sources, new_sources, parent, crossing, verdict, end, problem),
        target=waiting(verdict.target, carry.target),
        clip=lax.stop_gradient(waiting(verdict.clip, carry.clip)),
        fresh=verdict.lands | verdict.jumps,
        unseated=waiting(verdict.jumps, carry.unseated),
        attempts=carry.attempts + active.astype(jnp.int32),
        evaluations=waiting(evaluations + sweep.count * (setup.method.stages - 1), carry.evaluations),
        result=RESULTS.where(active, result, carry.result),
        controller_state=verdict.controller_state,
        events=events,
        meter_state=setup.meter.step(carry.meter_state, (following.t - problem.t0) / (problem.t1 - problem.t0)),
    )


def _crossing(problem: Problem, view: View, sweep: Sweep, end: End) -> Crossing:
    crossing = first_crossing(problem, view, sweep.row, end.at_jump)
    # Beyond a stop that is not its own a step has seen nothing. What is at t1, but for rounding, will be seen by no other.
    start = row_start(sweep.row)
    within = jnp.where(end.at_jump, 0, 2 * shortest_step(start, problem))
    unseen = end.stops & ((crossing.theta > 1) | ((1 - crossing.theta) * (end.t - start) < within))
    return eqx.tree_at(lambda c: c.found, crossing, crossing.found & ~unseen)


def _verdict(
    carry: Carry, active, start: Start, sweep: Sweep, crossing: Crossing, sources: Sources, end: End, problem, setup: Setup
) -> Verdict:
    """What becomes of a step, and where the next one is to end."""
    good, target, controller_state, result = _judge(carry, start, sweep, end.t, problem, setup)
    # No shorter step will be better; `start_at` says what infinity stands for.
    failure = RESULTS.where(any_of(jnp.isnan(start.slope)), RESULTS.field_nonfinite, RESULTS.no_convergence)
    result = RESULTS.where(any_of(~jnp.isfinite(start.slope)), failure, result)
    # A step is left at the root too if rounding leaves no other one to take again.
    length = end.t - start.t
    apart = jnp.minimum(crossing.theta, jnp.abs(1 - crossing.theta)) * length
    alone = crossing.found & (apart <= 2 * shortest_step(start.t, problem))
    lands = good & (crossing.lands | alone)
    retaken = good & crossing.found & ~lands
    keep, lands = good & ~retaken & active, lands & active
    t, y = _left_at(lands, crossing, sweep, sources, end.t, problem)

    # A step that is cut off tells the controller nothing about the one it wanted, as in `judge`.
    short = lands & (carry.target > t + SNAP * (carry.target - start.t))
    wanted = frozen(t + (carry.target - start.t)) if setup.adaptive else carry.target
    target = jnp.where(retaken, carry.target, jnp.where(short, wanted, target))
    undone = retaken | short | ~active
    behind = start.t + crossing.theta * (1 + BEYOND) * length
    return Verdict(
        keep=keep,
        lands=lands,
        jumps=keep & ~lands & end.at_jump,
        t=t,
        y=y,
        target=target,
        # (A step that is too long for its error too had better end there next time; but not at its very start: what it saw
        # there is hardly ever true, and a step of a few floats has no curvature, which second derivatives need.)
        clip=jnp.where(crossing.found & ~lands & (good | (crossing.theta > TINY)), behind, jnp.inf),
        controller_state=jax.tree.map(lambda a, b: jnp.where(undone, b, a), controller_state, carry.controller_state),
        result=with_broken_lags(result, keep, crossing, start, t, y, problem, setup),
    )


def _noted(record: Record | None, number, sweep: Sweep, old: Sources, new: Sources, parent, crossing, verdict, end, problem):
    """The record with the step, if there is one."""
    if record is None:
        return None
    echo = parent * len(problem.lags) + crossing.lag
    depends_on = jnp.where(end.stops, jnp.where(end.at_jump, DECLARED - old.next_jump, END), FROZEN)
    source = jnp.where(new.size > old.size, old.size, -1)
    return record.write(number, Note(sweep.links, old.pointers, jnp.where(verdict.lands, echo, depends_on), source))


def _seated(carry: Carry, sources: Sources, problem: Problem) -> Sources:
    """The lags where they look, at the start and behind a declared jump; else they know."""

    def seated():
        looked_up = frozen(problem.looked_up(just_after(carry.start.t), carry.start.y))
        slack = jnp.where(carry.past.count > 0, slack_of(problem), 0)
        return jnp.where(carry.unseated, seat(sources, looked_up, slack).pointers, sources.pointers)

    pointers = lax.cond(unvmap_any(carry.unseated), seated, lambda: sources.pointers)
    return eqx.tree_at(lambda s: s.pointers, sources, pointers)


def _refreshed(carry: Carry, view: View, problem: Problem, setup: Setup) -> tuple[Start, Int[Array, ""]]:
    """The start of the step with its slope, and the number of evaluations so far."""
    old = carry.start
    if not setup.method.reuses_last:
        return start_at(problem, setup, view, old.t, old.y, old.guesses), carry.evaluations + 1
    new = lambda: jax.tree.map(
        lambda a, b: jnp.where(carry.fresh, a, b), start_at(problem, setup, view, old.t, old.y, old.guesses), old
    )
    start = lax.cond(unvmap_any(carry.fresh), new, lambda: old)
    return start, carry.evaluations + carry.fresh.astype(jnp.int32)


def _end(carry: Carry, sources: Sources, problem: Problem, setup: Setup) -> End:
    """Where the step ends."""
    t = carry.start.t
    stop, is_jump = next_stop(sources, problem)
    target = jnp.maximum(carry.target, t + shortest_step(t, problem))
    limit = jnp.minimum(stop, t + _shortest(problem) / setup.method.reach)
    limit = jnp.minimum(limit, next_echo(sources, problem, t + slack_of(problem)))
    t_end = jnp.where(target >= limit - SNAP * (target - t), limit, target)
    t_end = lax.stop_gradient(jnp.minimum(t_end, jnp.maximum(carry.clip, t + shortest_step(t, problem))))
    stops = t_end == stop
    return End(jnp.where(stops, stop, t_end), stops & is_jump, stops)


def _step(carry: Carry, sources: Sources, start: Start, view: View, t_end, problem: Problem, setup: Setup) -> Sweep:
    # (The last source is the start of the step if no row lies between.)
    smooth = read(sources.rows, sources.size - 1) < carry.past.count
    guess = frozen(continued(carry.pending, start, t_end, smooth))
    # What rounding leaves is of the size of the state, or of its change where it passes zero.
    change = 0 if setup.adaptive else (t_end - start.t).astype(start.y.dtype) * start.slope
    scale = frozen(0.01 * tolerance(jnp.maximum(jnp.abs(start.y), jnp.abs(change)), setup))
    return take_sweeps(problem, setup, view, start, t_end, guess, scale)


def _judge(carry: Carry, start: Start, sweep: Sweep, t_end, problem: Problem, setup: Setup):
    """What the controller says; a step whose sweeps did not settle is to be shorter."""
    success: Any = dfx.RESULTS.successful
    error = sweep.error
    if error is not None:
        error = jnp.where(sweep.converged, error, jnp.inf)
    step = Step(sweep.y_end, error, [], [], sweep.slope_end, success)
    keep, target, state, result = judge(start.t, t_end, carry.target, start.y, step, carry.controller_state, problem, setup)
    if not setup.adaptive:
        finite = jnp.all(jnp.isfinite(sweep.row))
        failure = RESULTS.where(finite, RESULTS.no_convergence, RESULTS.field_nonfinite)
        return keep & sweep.converged, target, state, RESULTS.where(sweep.converged, result, failure)
    shorter = start.t + 0.3 * (t_end - start.t)
    unsettled = ~sweep.converged & jnp.all(jnp.isfinite(sweep.row))
    state = jax.tree.map(lambda new, old: jnp.where(unsettled, old, new), state, carry.controller_state)
    return keep & sweep.converged, jnp.where(unsettled, shorter, target), state, result


def _left_at(lands, crossing: Crossing, sweep: Sweep, sources: Sources, t_end, problem: Problem):
    """(Time, state) at which the step is left: at the breakpoint if it lands on one, else at its end."""

    def landed():
        lower, upper = sources.bounds()
        source_time = jnp.where(crossing.up, read(upper, crossing.lag), read(lower, crossing.lag))
        t = landing_time(problem, sweep.row, crossing.theta, crossing.lag, source_time)
        y = state_at(sweep.row, t, problem.y0)
        return jnp.where(lands, t, t_end), jnp.where(lands, y, sweep.y_end)

    return lax.cond(unvmap_any(lands), landed, lambda: (t_end, sweep.y_end))


def _passed(sources: Sources, crossing: Crossing, verdict: Verdict, row: Int[Array, ""], problem: Problem, setup: Setup):
    """(The sources behind the end of the step, the entry to be written, the source that was looked at there)."""
    deepest = deepest_level(setup.method.order, len(problem.lags))
    keeps, slack = slope_flags(problem), slack_of(problem)
    ends = (verdict.lands, verdict.jumps, verdict.t)
    new, entry, parent = pass_end(sources, crossing.lag, crossing.up, *ends, row, deepest, keeps, slack)
    if problem.kicks is not None:
        level = jnp.where(verdict.jumps, declared_level(sources.next_jump, problem), entry.level)
        entry = eqx.tree_at(lambda e: e.level, entry, level.astype(jnp.int32))
    return new, entry, parent


def _guesses(sweep: Sweep, past: Past) -> Int[Array, " n"]:
    """Where the next step starts to search: where this one last looked."""
    return jnp.clip(sweep.links[-1], 0, past.count)
