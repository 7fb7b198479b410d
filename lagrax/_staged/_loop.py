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

from .._control import SNAP, Events, first_events, first_result, first_step, judge, kick, shortest_step, watch
from .._method._step import Step
from .._output._results import RESULTS
from .._past import Past, empty_past, evaluate, split_rows
from .._planned._breakpoints import declared_level, deepest_level
from .._problem import Problem
from .._setup import Setup
from .._trajectory import DECLARED, END, FROZEN, Trajectory
from .._xla._buffer import read, write
from .._xla._compat import unvmap_any
from .._xla._neighbours import just_after
from ._crossing import BEYOND, Crossing, first_crossing, landing_time
from ._lookup import View, frozen, look_back, slope_flags
from ._record import Note, Record, empty_record
from ._sources import Entry, Sources, initial_sources, next_stop, pass_end, seat
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
        record=empty_record(problem, setup.method, setup.max_steps) if setup.keep.record else None,
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


def _attempt(carry: Carry, problem: Problem, setup: Setup) -> Carry:
    """One attempted step. A lane of a batch that has nothing to do repeats its step and does not keep it."""
    active = _active(carry, problem, setup)
    past = _written(carry)
    sources = _seated(carry, carry.sources.written(carry.entry), problem)
    view = look_back(past, sources, carry.start.t, problem)
    start, evaluations = _refreshed(carry, view, problem, setup)
    t_end, stops_at_jump, stops = _end(carry, sources, problem, setup)
    sweep = _step(carry, sources, start, view, t_end, problem, setup)
    keep, target, controller_state, result = _judge(carry, start, sweep, t_end, problem, setup)

    crossing = first_crossing(problem, view, sweep.row, _slack(problem))
    # Beyond a stop that is not its own a step has seen nothing. What is at t1, but for rounding, will be seen by no other.
    within = jnp.where(stops_at_jump, 0, 2 * shortest_step(start.t, problem))
    unseen = stops & ((crossing.theta > 1) | ((1 - crossing.theta) * (t_end - start.t) < within))
    crossing = eqx.tree_at(lambda c: c.found, crossing, crossing.found & ~unseen)
    # (So is a step if rounding leaves no other one to take again.)
    apart = jnp.minimum(crossing.theta, jnp.abs(1 - crossing.theta)) * (t_end - start.t)
    alone = crossing.found & (apart <= 2 * shortest_step(start.t, problem))
    lands = keep & (crossing.lands | alone)
    retaken = keep & crossing.found & ~lands
    keep = keep & active & ~retaken
    lands = lands & active
    t, y = _left_at(lands, crossing, sweep, sources, t_end, problem)
    result = _with_broken_lags(result, keep, crossing, start, t, y, problem, setup)
    jumps = keep & ~lands & stops_at_jump
    new_sources, entry, parent = _passed(sources, crossing, lands, jumps, keep, t, past.count + 1, problem, setup)
    kept = lambda new, old: jax.tree.map(lambda a, b: jnp.where(keep, a, b), new, old)
    events, result = watch(carry.events, keep, kept(t, start.t), kept(y, start.y), result, problem, setup)
    declared = jnp.where(stops_at_jump, DECLARED - sources.next_jump, END)
    if problem.kicks is not None:
        y, events, result, kicked = kick(sources.next_jump, jumps, t, y, events, result, problem, setup)
        # Before a kick that does not happen any more, because an event was first, the solve ends on no declared time.
        declared = jnp.where(jumps & problem.kicks.are(sources.next_jump) & ~kicked, FROZEN, declared)
    record = carry.record
    if record is not None:
        echo = parent * len(problem.lags) + crossing.lag
        depends_on = jnp.where(stops, declared, FROZEN)
        source = jnp.where(new_sources.size > sources.size, sources.size, -1)
        note = Note(sweep.links, sources.pointers, jnp.where(lands, echo, depends_on), source)
        record = record.write(past.count, note)

    after = Start(t, y, sweep.slope_end, sweep.links[setup.method.end], _guesses(sweep, past))
    # A step that is cut off tells the controller nothing about the one it wanted, as in `judge`.
    short = lands & (carry.target > t + SNAP * (carry.target - start.t))
    wanted = frozen(t + (carry.target - start.t)) if setup.adaptive else carry.target
    target = jnp.where(retaken, carry.target, jnp.where(short, wanted, target))
    undone = retaken | short | ~active
    clip = jnp.where(retaken, start.t + crossing.theta * (1 + BEYOND) * (t_end - start.t), jnp.inf)
    return Carry(
        start=kept(after, start),
        past=eqx.tree_at(lambda p: p.count, past, past.count + keep.astype(jnp.int32)),
        pending=kept(sweep.row, carry.pending),
        sources=new_sources,
        entry=entry,
        record=record,
        target=jnp.where(active, target, carry.target),
        clip=lax.stop_gradient(jnp.where(active, clip, carry.clip)),
        fresh=keep & (lands | jumps),
        unseated=jnp.where(active, jumps, carry.unseated),
        attempts=carry.attempts + active.astype(jnp.int32),
        evaluations=jnp.where(active, evaluations + sweep.count * (setup.method.stages - 1), carry.evaluations),
        result=RESULTS.where(active, result, carry.result),
        controller_state=jax.tree.map(lambda a, b: jnp.where(undone, b, a), controller_state, carry.controller_state),
        events=events,
        meter_state=setup.meter.step(carry.meter_state, (kept(t, start.t) - problem.t0) / (problem.t1 - problem.t0)),
    )


def _seated(carry: Carry, sources: Sources, problem: Problem) -> Sources:
    """The lags where they look, at the start and behind a declared jump; else they know."""

    def seated():
        looked_up = frozen(problem.looked_up(just_after(carry.start.t), carry.start.y))
        slack = jnp.where(carry.past.count > 0, _slack(problem), 0)
        return jnp.where(carry.unseated, seat(sources, looked_up, slack).pointers, sources.pointers)

    pointers = lax.cond(unvmap_any(carry.unseated), seated, lambda: sources.pointers)
    return eqx.tree_at(lambda s: s.pointers, sources, pointers)


def _slack(problem: Problem) -> Float[Array, ""]:
    """By how much a lag may look beyond an end of its piece because of rounding."""
    return 64 * jnp.finfo(problem.t0.dtype).eps * jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))


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


def _end(carry: Carry, sources: Sources, problem: Problem, setup: Setup):
    """(Where the step ends, whether that is a declared jump, whether it is that or t1, both of which carry derivatives)."""
    t = carry.start.t
    stop, is_jump = next_stop(sources, problem)
    target = jnp.maximum(carry.target, t + shortest_step(t, problem))
    limit = jnp.minimum(stop, t + _shortest(problem) / setup.method.reach)
    t_end = jnp.where(target >= limit - SNAP * (target - t), limit, target)
    t_end = lax.stop_gradient(jnp.minimum(t_end, jnp.maximum(carry.clip, t + shortest_step(t, problem))))
    stops = t_end == stop
    return jnp.where(stops, stop, t_end), stops & is_jump, stops


def _step(carry: Carry, sources: Sources, start: Start, view: View, t_end, problem: Problem, setup: Setup) -> Sweep:
    # (The last source is the start of the step if no row lies between.)
    smooth = read(sources.rows, sources.size - 1) < carry.past.count
    guess = frozen(continued(carry.pending, start, t_end, smooth))
    scale = frozen(0.01 * _tolerance(start.y, setup))
    return take_sweeps(problem, setup, view, start, t_end, guess, scale)


def _tolerance(y: Inexact[Array, " d"], setup: Setup) -> Float[Array, " d"]:
    """The error that a step may make; with fixed steps, what rounding leaves."""
    controller: Any = setup.controller
    size = jnp.abs(y)
    if not (hasattr(controller, "rtol") and hasattr(controller, "atol")):
        eps = jnp.finfo(size.dtype).eps
        return 1e4 * eps * jnp.maximum(size, jnp.max(size) + eps)
    least = lambda x: jnp.min(jnp.stack([jnp.min(jnp.asarray(leaf, size.dtype)) for leaf in jax.tree.leaves(x)]))
    return least(controller.atol) + least(controller.rtol) * size


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
    lower, upper = sources.bounds()
    source_time = jnp.where(crossing.up, read(upper, crossing.lag), read(lower, crossing.lag))
    t = landing_time(problem, sweep.row, crossing.theta, crossing.lag, source_time)
    t = jnp.where(lands, t, t_end)
    y = evaluate(*split_rows(sweep.row), t, problem.y0.dtype, problem.y0.size)
    return t, jnp.where(lands, y, sweep.y_end)


def _with_broken_lags(result: RESULTS, keep, crossing: Crossing, start: Start, t, y, problem: Problem, setup: Setup):
    """The result, unless a lag looks into the future, is shorter than promised, or NaN, on a step to (t, y) that is kept,
    or at the start of one that is not, which may be why."""
    start, t, y, problem = frozen((start, t, y, problem))
    begin = just_after(start.t)
    at_start = lax.cond(unvmap_any(~keep), lambda: problem.looked_up(begin, start.y), lambda: crossing.looked_up[0])
    times = jnp.where(keep, crossing.times, begin)
    looked_up = jnp.where(keep, crossing.looked_up, at_start)
    t, y = jnp.where(keep, t, begin), jnp.where(keep, y, start.y)
    seen = (times <= t + _slack(problem))[:, None]
    shortest = jnp.min(jnp.where(seen, times[:, None] - looked_up, jnp.inf), axis=0)
    promised = jnp.stack([_promise(lag, problem) for lag in problem.lags])
    suspicious = jnp.any(shortest < jnp.maximum(promised, 0) - _slack(problem))

    def uncertainty():
        # A lag is as uncertain as the state that it depends on.
        error = 10 * _tolerance(y, setup) if setup.adaptive else 0.01 * jnp.abs(y - start.y)
        _, transpose = jax.vjp(lambda y: problem.looked_up(t, y), y)
        weights = jax.vmap(lambda which: transpose(which)[0])(jnp.eye(len(shortest), dtype=shortest.dtype))
        return jnp.abs(weights) @ error

    slack = _slack(problem) + lax.cond(unvmap_any(suspicious), uncertainty, lambda: jnp.zeros_like(shortest))
    broken: Any = RESULTS.where(jnp.any(shortest < promised - slack), RESULTS.bad_delay, RESULTS.successful)
    broken = RESULTS.where(jnp.any(shortest < -slack), RESULTS.advanced_argument, broken)
    broken = RESULTS.where(jnp.all(jnp.isfinite(looked_up) | ~seen), broken, RESULTS.lag_nonfinite)
    counts = (broken != RESULTS.successful) & (~keep | (result == RESULTS.successful))
    return RESULTS.where(counts, broken, result)


def _promise(lag, problem: Problem) -> Float[Array, ""]:
    promise = None if lag.overlaps else lag.shortest()
    return lax.stop_gradient(jnp.asarray(-jnp.inf if promise is None else promise, problem.t0.dtype))


def _passed(sources: Sources, crossing: Crossing, lands, jumps, keep, t, row, problem: Problem, setup: Setup):
    """(The sources behind the end of the step, the entry to be written, the source that was looked at there)."""
    deepest = deepest_level(setup.method.order, len(problem.lags))
    new, entry, parent = pass_end(
        sources, crossing.lag, crossing.up, lands, jumps, t, row, deepest, slope_flags(problem), _slack(problem)
    )
    if problem.kicks is not None:
        level = jnp.where(jumps, declared_level(sources.next_jump, problem), entry.level)
        entry = eqx.tree_at(lambda e: e.level, entry, level.astype(jnp.int32))
    astray = jnp.where(keep & ~lands & ~jumps, crossing.astray, 0)
    return eqx.tree_at(lambda s: s.pointers, new, new.pointers + astray), entry, parent


def _guesses(sweep: Sweep, past: Past) -> Int[Array, " n"]:
    """Where the next step starts to search: where this one last looked."""
    return jnp.clip(sweep.links[-1], 0, past.count)
