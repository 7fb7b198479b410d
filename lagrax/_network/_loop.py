"""The forward loop for networks: look up one component for every element and node, step, judge.

Kinks are not tracked: ten thousand delays have ten thousand breakpoints up to the longest of them, each the kink of one term
in a sum. Steps end on declared jumps of the field, and otherwise where error control has them end.

As in `_staged/_loop.py` the row of an accepted step is written at the start of the next iteration, before all reads.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int, PyTree

from .._control import SNAP, Events, first_events, first_result, first_step, judge, shortest_step, watch
from .._method._step import start_slope
from .._planned._breakpoints import JUMP, KINK, roughest
from .._problem import Problem
from .._results import RESULTS
from .._setup import Setup
from .._trajectory import DECLARED, END, FROZEN, Trajectory
from .._xla._buffer import read, write
from .._xla._compat import unvmap_any
from ._kink import with_corners
from ._lookup import Lookup, hunt_forwards, look, query_times, seat, see
from ._memory import Memory, empty_memory, misfit
from ._sweep import take_sweeps


class Record(eqx.Module):
    """What a backward pass needs besides the steps: what the time of each step's end depends on (`_trajectory.py`)."""

    memory: Memory
    depends_on: Int[Array, " steps"]


class Sources(eqx.Module):
    """The kinks that are known: t0 and the declared jumps."""

    times: Float[Array, " sources"]

    def kinks(
        self, problem: Problem, t_end: Float[Array, ""], most: int
    ) -> tuple[Float[Array, " most"], Int[Array, " most"]]:
        """Those that a solve which continues this one may look back at, and their levels."""
        jumps = problem.jump_ts
        before = jnp.full(jumps.size, JUMP, jnp.int32) if problem.roughness is None else problem.roughness
        levels = jnp.append(jnp.where(jumps < problem.t0, before, KINK), jnp.int32(JUMP if problem.may_jump else KINK))
        return roughest(self.times, levels, jnp.append(jumps, problem.t0), (-jnp.inf, t_end), most)


class Carry(eqx.Module):
    """The state of the loop. `pending` is the row of the last accepted step, from `begin` to t, number `count` - 1, still to
    be written; `pointers` are the rows that the elements read at t. `stop` is the end of the segment, `arrived` says that t
    is there."""

    t: Float[Array, ""]
    y: Inexact[Array, " d"]
    slope: Inexact[Array, " d"]
    begin: Float[Array, ""]
    pending: Inexact[Array, "d powers"]
    memory: Memory
    pointers: Int[Array, " e"]
    count: Int[Array, ""]
    stop: Float[Array, ""]
    depends_on: Int[Array, ""]
    record: Int[Array, " steps"] | None
    target: Float[Array, ""]
    arrived: Bool[Array, ""]
    attempts: Int[Array, ""]
    evaluations: Int[Array, ""]
    result: RESULTS
    controller_state: PyTree
    events: Events
    meter_state: PyTree


def integrate(problem: Problem, setup: Setup) -> Trajectory:
    """Solves the problem. Differentiable in forward mode; `_walk_back.py` adds reverse mode."""
    running = lambda carry: unvmap_any((carry.t < problem.t1) & _able(carry, setup))
    inside = lambda carry: unvmap_any(~carry.arrived & _able(carry, setup))
    step = lambda carry: _attempt(carry, problem, setup)
    cross = lambda carry: lax.while_loop(inside, step, _enter(carry, problem))
    carry = _begin(problem, setup)
    carry = lax.while_loop(running, cross, carry) if problem.jump_ts.size else cross(carry)
    setup.meter.close(carry.meter_state)
    unfinished = (carry.t < problem.t1) & (carry.result == RESULTS.successful)
    memory = _written(carry)
    return Trajectory(
        past=memory.as_past(carry.count, setup.max_steps),
        record=None if carry.record is None else Record(memory, carry.record),
        sources=Sources(lax.stop_gradient(jnp.append(problem.jump_ts, problem.t0))),
        t_end=carry.t,
        y_end=carry.y,
        count=carry.count,
        attempts=carry.attempts,
        evaluations=carry.evaluations,
        result=RESULTS.where(unfinished, RESULTS.max_steps_reached, carry.result),
        event_mask=carry.events.mask,
    )


def _able(carry: Carry, setup: Setup) -> Bool[Array, ""]:
    """Whether nothing forbids another attempt."""
    return (carry.result == RESULTS.successful) & (carry.attempts < setup.max_steps)


def _begin(problem: Problem, setup: Setup) -> Carry:
    memory, zero = empty_memory(problem, setup.method, setup.max_steps), jnp.zeros((), jnp.int32)
    events, ended = first_events(problem)
    pointers = seat(memory.starts[: memory.first], query_times(problem, setup.method, problem.t0, problem.t0)[0])

    def delayed(t, y):
        # A trial step may be longer than a delay, and then sees the last of the initial function.
        times = jnp.minimum(query_times(problem, setup.method, t, t)[:1], problem.t0)
        found = seat(memory.starts[: memory.first], times[0])
        return _seen(memory, look(memory, found[None], times), problem)[0]

    target, controller_state = first_step(problem, setup, delayed)
    return Carry(
        t=problem.t0,
        y=problem.y0,
        slope=jnp.zeros_like(problem.y0),
        begin=problem.t0,
        pending=jnp.zeros_like(memory.rows[0]),
        memory=memory,
        pointers=pointers,
        count=zero,
        stop=problem.t1,
        depends_on=zero,
        record=jnp.zeros(setup.max_steps, jnp.int32) if setup.keep.record else None,
        target=target,
        arrived=jnp.array(False),
        attempts=zero,
        evaluations=zero + (2 if setup.dt0 is None and setup.adaptive else 0),
        result=first_result(ended, problem, setup, _conditions(problem, setup)),
        controller_state=controller_state,
        events=events,
        meter_state=setup.meter.init(),
    )


def _conditions(problem: Problem, setup: Setup) -> dict[str, Bool[Array, ""]]:
    network, late = problem.network, jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
    delays = network.delays(problem.lags, problem.y0.size, late.dtype)
    shortest = network.shortest(problem.lags, late.dtype)
    conditions = {
        "bad_selection": network.valid,
        "bad_delay": jnp.all((delays >= 0) & jnp.isfinite(delays)) & (shortest > 0),
        "bad_precision": ~(shortest < 128 * jnp.finfo(late.dtype).eps * late),
    }
    if callable(problem.history):
        error, values = misfit(problem, setup.method)
        conditions["rough_history"] = ~jnp.any(jnp.abs(error) > _allowed(jnp.abs(values), setup))
    return conditions


def _allowed(size: Float[Array, "*shape"], setup: Setup) -> Float[Array, "*shape"]:
    """How wrong the initial function may be read: by a tenth of the tolerance; with fixed steps, a hundred-thousandth."""
    controller: Any = setup.controller
    if not (hasattr(controller, "rtol") and hasattr(controller, "atol")):
        return 1e-5 * (size + jnp.max(size))
    least = lambda x: jnp.min(jnp.stack([jnp.min(jnp.asarray(leaf, size.dtype)) for leaf in jax.tree.leaves(x)]))
    rounding = 64 * jnp.finfo(size.dtype).eps * jnp.max(size)
    return 0.1 * (least(controller.atol) + least(controller.rtol) * size) + rounding


def _written(carry: Carry) -> Memory:
    """The memory with the last accepted step in it. (Before the first one, it is still to come in its place.)"""
    nothing = carry.count == 0
    begin = jnp.where(nothing, jnp.inf, carry.begin)
    return carry.memory.written(jnp.maximum(carry.count - 1, 0), carry.pending, begin, carry.t)


def _enter(carry: Carry, problem: Problem) -> Carry:
    """Into the stretch up to the next declared jump, or to t1: the slope at its start is to be computed."""
    stop, depends_on = problem.t1, jnp.full((), END, jnp.int32)
    if problem.jump_ts.size:
        rounding = 8 * jnp.finfo(stop.dtype).eps * jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
        ahead = (problem.jump_ts > carry.t + rounding) & (problem.jump_ts < problem.t1 - rounding)
        number = lax.argmax(ahead, 0, jnp.int32)
        stop = jnp.where(jnp.any(ahead), read(problem.jump_ts, number), stop)
        depends_on = jnp.where(jnp.any(ahead), DECLARED - number, depends_on)
    memory = _written(carry)
    delays = problem.network.delays(problem.lags, problem.y0.size, carry.t.dtype)
    seen = _seen(memory, look(memory, carry.pointers[None], carry.t - delays[None]), problem)
    slope = start_slope(problem, carry.t, carry.y, seen)
    fresh = carry.arrived | (carry.attempts == 0)
    broken = fresh & (carry.result == RESULTS.successful) & ~jnp.all(jnp.isfinite(slope))
    updated = (
        memory,
        jnp.where(fresh, slope, carry.slope),
        jnp.where(fresh, stop, carry.stop),
        jnp.where(fresh, depends_on, carry.depends_on),
        carry.arrived & (carry.t >= problem.t1),
        carry.evaluations + fresh.astype(jnp.int32),
        RESULTS.where(broken, RESULTS.field_nonfinite, carry.result),
    )
    fields = lambda c: (c.memory, c.slope, c.stop, c.depends_on, c.arrived, c.evaluations, c.result)
    return eqx.tree_at(fields, carry, updated)


def _seen(memory: Memory, lookup: Lookup, problem: Problem) -> Inexact[Array, "nodes e"]:
    """What the elements see. Those without delay see the state of the stage (`Network.now`), and here nothing."""
    seen = see(memory, lookup, problem.network.senders)
    if not problem.network.overlaps:
        return seen
    return jnp.where(problem.network.delays(problem.lags, problem.y0.size, problem.t0.dtype) == 0, 0, seen)


def _end(carry: Carry, problem: Problem, setup: Setup) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """(Where the step ends, whether that is the end of the segment, which carries derivatives)."""
    t = carry.t
    target = jnp.maximum(carry.target, t + shortest_step(t, problem))
    shortest = problem.network.shortest(problem.lags, t.dtype)
    limit = jnp.minimum(carry.stop, t + shortest / setup.method.reach)
    t_end = lax.stop_gradient(jnp.where(target >= limit - SNAP * (target - t), limit, target))
    stops = t_end == carry.stop
    return jnp.where(stops, carry.stop, t_end), stops


def _attempt(carry: Carry, problem: Problem, setup: Setup) -> Carry:
    """One attempted step. A lane of a batch that has nothing to do repeats its step and does not keep it."""
    method = setup.method
    active = ~carry.arrived & _able(carry, setup)
    memory = _written(carry)
    t_end, stops = _end(carry, problem, setup)
    if problem.network.overlaps:
        memory = memory.clocked(carry.count + memory.first, carry.t, t_end)
    # The first node is not looked at where the slope there is known.
    skip = int(method.reuses_last and not method.implicit)
    times = query_times(problem, method, carry.t, t_end, skip)
    lookup = look(memory, hunt_forwards(memory.starts, carry.pointers, times), times)
    seen = with_corners(_seen(memory, lookup, problem), memory, carry.t, t_end, carry.count, skip, problem, method)
    if skip:
        seen = jnp.concatenate([jnp.zeros_like(seen[:1]), seen])
        slope = carry.slope
    else:
        slope = carry.slope if method.reuses_last else start_slope(problem, carry.t, carry.y, seen)
    step, row, sweeps, settled = take_sweeps(carry, slope, t_end, lookup, seen, problem, setup)
    keep, target, controller_state, result = judge(
        carry.t, t_end, carry.target, carry.y, step, carry.controller_state, problem, setup
    )
    result = result if setup.adaptive else RESULTS.where(settled, result, RESULTS.no_convergence)
    keep = keep & active & settled
    kept = lambda new, old: jax.tree.map(lambda a, b: jnp.where(keep, a, b), new, old)
    t, y = kept(t_end, carry.t), kept(step.y_end, carry.y)
    events, result = watch(carry.events, keep, t, y, result, problem, setup)
    slope = kept(step.slope_end if method.reuses_last else slope, carry.slope)
    result = RESULTS.where(keep & ~jnp.all(jnp.isfinite(slope)), RESULTS.field_nonfinite, result)
    record = carry.record
    if record is not None:
        record = write(record, jnp.minimum(carry.count, setup.max_steps - 1), jnp.where(stops, carry.depends_on, FROZEN))
    waiting = lambda new, old: jax.tree.map(lambda a, b: jnp.where(active, a, b), new, old)
    each = method.stages - (1 if method.reuses_last else 0)
    return Carry(
        t=t,
        y=y,
        slope=slope,
        begin=kept(carry.t, carry.begin),
        pending=kept(row, carry.pending),
        memory=memory,
        pointers=kept(lookup.links[method.last_node - skip], carry.pointers),
        count=carry.count + keep.astype(jnp.int32),
        stop=carry.stop,
        depends_on=carry.depends_on,
        record=record,
        target=waiting(target, carry.target),
        arrived=carry.arrived | (keep & stops),
        attempts=carry.attempts + active.astype(jnp.int32),
        evaluations=carry.evaluations + jnp.where(active, sweeps * each, 0),
        result=RESULTS.where(active, result, carry.result),
        controller_state=waiting(controller_state, carry.controller_state),
        events=events,
        meter_state=setup.meter.step(carry.meter_state, (t - problem.t0) / (problem.t1 - problem.t0)),
    )
