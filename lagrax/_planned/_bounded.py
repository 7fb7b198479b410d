"""Constant delays in bounded memory: the past is a ring, and what is to be saved is saved on the way.

The loop is that of `_loop.py`, paused after every segment of so many steps. For a backward pass the ring is kept at each
pause, and the mesh all along; backwards, a segment is taken once more on its mesh, so that rounding changes no decision, and
then walked back as in `_walk_back.py`. With N steps, R rows and segments of S = √(N R) steps that is room for 2 √(N R)
rows, and for the times and a few integers of every step.
"""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, Int

from .._control import shortest_step
from .._method._step import start_slope, take_step
from .._past import Past, evaluate, make_row, row_end, row_start, split_rows
from .._problem import Problem
from .._results import RESULTS, failed
from .._ring import Observed
from .._setup import Setup
from .._trajectory import Cotangents, Record, Trajectory, add_to, declared_jump, spoil
from .._xla._buffer import read, read_each, read_some, write
from .._xla._compat import unvmap_any, unvmap_max
from .._xla._kernel import in_one_kernel
from ._breakpoints import Sources, first_rows, initial_sources, mesh_cotangents, sides_at
from ._lookup import WINDOW, delayed_states, find_rows, query_times, search_window
from ._loop import Carry, evaluations_of, pass_breakpoints, start_loop
from ._walk_back import walk

CHUNK = 2**13
"""Steps between two pauses of a solve that will not be differentiated: then progress is shown."""


class Snapshot(eqx.Module):
    """What the loop knows at a pause: the rows from the oldest on, the state, where lookups last were, and which row was
    the last that is not of length zero. (For all pauses, one after the other.)"""

    rows: Inexact[Array, "*pauses rows row"]
    y: Inexact[Array, "*pauses d"]
    pointers: Int[Array, "*pauses n"]
    last: Int[Array, "*pauses"]


def integrate_bounded(problem: Problem, setup: Setup, ts: Float[Array, " times"]):
    """(The trajectory, the states at `ts`, the snapshots for a backward pass). Differentiable in forward mode."""
    # (Several lists of times, one after the other, are passed in the order of time.)
    order = jnp.argsort(ts)
    trajectory, ys, snapshots = _integrate(problem, setup, ts[order])
    return trajectory, ys[jnp.argsort(order)], snapshots


def _integrate(problem: Problem, setup: Setup, ts: Float[Array, " times"]):
    recording, quiet = setup.keep.record, dataclasses.replace(setup, meter=dfx.NoProgressMeter())
    length = setup.segment if recording else CHUNK
    zero = jnp.zeros((), jnp.int32)
    ys = empty_output(problem, ts)
    carry = dataclasses.replace(start_loop(problem, quiet), observed=Observed(ts, ys, zero, zero, zero))
    snapshots = jax.tree.map(
        lambda x: jnp.zeros((setup.room // length, *x.shape), x.dtype), _snapshot(carry) if recording else None
    )

    def unfinished(state):
        carry = state[0]
        able = (carry.result == RESULTS.successful) & (carry.attempts < setup.max_steps)
        return unvmap_any(able & (carry.t < problem.t1))

    def run(state):
        carry, sources, snapshots, meter, k = state
        if recording:
            snapshots = jax.tree.map(lambda all, one: write(all, k, one), snapshots, _snapshot(carry))
        carry = eqx.tree_at(lambda c: c.observed.limit, carry, (k + 1) * np.int32(length))
        carry, sources = in_one_kernel(pass_breakpoints, carry, sources, problem, quiet)
        meter = setup.meter.step(meter, (carry.t - problem.t0) / (problem.t1 - problem.t0))
        return carry, sources, snapshots, meter, k + 1

    state = (carry, initial_sources(problem, setup.method.order, setup.max_steps), snapshots, setup.meter.init(), zero)
    carry, sources, snapshots, meter, _ = lax.while_loop(unfinished, run, state)
    setup.meter.close(meter)
    observed: Any = carry.observed
    return _trajectory(carry, sources, problem, setup), observed.ys, snapshots


def _trajectory(carry: Carry, sources: Sources, problem: Problem, setup: Setup) -> Trajectory:
    past: Any = carry.past
    observed: Any = carry.observed
    unfinished = (carry.t < problem.t1) & (carry.result == RESULTS.successful)
    result = RESULTS.where(unfinished, RESULTS.max_steps_reached, carry.result)
    # If the ring was too small: as many as the longest delay will hold, if it goes on as it went.
    span = lax.stop_gradient(carry.t - past.oldest())
    whole = len(past.rows) * lax.stop_gradient(jnp.max(problem.delays)) / jnp.where(span > 0, span, 1)
    used = observed.used.astype(whole.dtype)
    needed = jnp.where(result == RESULTS.memory_reached, jnp.maximum(whole, len(past.rows) + 1), used)
    return Trajectory(
        past=past,
        record=carry.record,
        sources=sources,
        t_end=carry.t,
        y_end=carry.y,
        count=past.count,
        attempts=carry.attempts,
        evaluations=evaluations_of(carry, sources, setup),
        result=result,
        event_mask=None,
        memory_needed=(2 ** jnp.ceil(jnp.log2(jnp.maximum(needed, WINDOW)))).astype(jnp.int32),
    )


def _snapshot(carry: Carry) -> Snapshot:
    past: Any = carry.past
    return Snapshot(past.in_order(), carry.y, jnp.maximum(carry.plan.links[0], 0), past.last)


class Bars(eqx.Module):
    """The cotangents while walking back over segments: of the state, of the last rows before the segment that came last, of
    the time at which that starts; of the problem's variables, and of what its mesh depends on; of `ts`."""

    y: Inexact[Array, " d"]
    rows: Inexact[Array, "rows row"]
    start: Float[Array, ""]
    problem: Any
    mesh: tuple
    ts: Float[Array, " times"]


def walk_back_bounded(
    trajectory: Trajectory, snapshots: Snapshot, given, problem: Problem, ts, perturbed: Any, setup: Setup
):
    """(The cotangents of the problem's perturbed variables and of `ts`, how often the vector field was evaluated).

    `given` are the cotangents of the state and time at the end and of the states at `ts`, and whether any is not zero.
    """
    y_bar, t_bar, ys_bar, asked = given
    moving = any(jax.tree.leaves((perturbed.delays, perturbed.t0, perturbed.t1, perturbed.jump_ts)))
    variables = eqx.filter(eqx.filter(problem, eqx.is_inexact_array), perturbed)
    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)
    sources: Any = trajectory.sources
    time = jnp.zeros_like(problem.t0)
    mesh = (jnp.zeros_like(problem.delays), jnp.zeros(sources.root_count, time.dtype), time)
    first = Bars(y_bar, zeros(snapshots.rows[0]), time, zeros(variables), mesh, zeros(ts))
    segments = unvmap_max((trajectory.count + setup.segment - 1) // setup.segment)

    def back(state):
        number, bars, meter = state
        k = segments - 1 - number
        local = _retaken(k, trajectory, snapshots, problem, setup)
        bars = _segment_back(k, local, bars, (t_bar, ys_bar, asked), trajectory, problem, ts, perturbed, moving, setup)
        share = (number + 1).astype(time.dtype) / segments.astype(time.dtype)
        return number + 1, bars, setup.meter.step(meter, share)

    start = (jnp.zeros((), jnp.int32), first, setup.meter.init())
    _, bars, meter = lax.while_loop(lambda state: state[0] < segments, back, start)
    setup.meter.close(meter)
    total = add_to(bars.problem, lambda p: (p.y0,), (bars.y,))
    if moving:
        delays_bar, roots_bar, t1_bar = bars.mesh
        times_bar = (delays_bar, roots_bar[-1] + bars.start, t1_bar, roots_bar[:-1])
        total = add_to(total, lambda p: (p.delays, p.t0, p.t1, p.jump_ts), times_bar)
    total, ts_bar = spoil((total, bars.ts), failed(trajectory.result), asked)
    return total, ts_bar, 2 * trajectory.count * setup.method.stages


def _segment_back(
    k, local: Trajectory, bars: Bars, given, trajectory: Trajectory, problem, ts, perturbed, moving, setup
) -> Bars:
    """Over segment k, whose steps are `local` ones from number R on."""
    t_bar, ys_bar, asked = given
    past: Any = local.past
    ends: Any = trajectory.record
    size, length = setup.memory, setup.segment
    rows_bar = jnp.concatenate([jnp.zeros((length, past.rows.shape[1]), past.rows.dtype), bars.rows])
    ts_bar = bars.ts
    if len(ts):
        more, here, saved_bar = _observed_back(k, trajectory, past.rows, ys_bar, ts, problem, perturbed, setup)
        rows_bar, ts_bar = rows_bar + more, ts_bar + here
        bars = eqx.tree_at(lambda b: b.problem, bars, jax.tree.map(jnp.add, bars.problem, saved_bar))
    cotangents = Cotangents(rows_bar, None, bars.y, jnp.zeros_like(t_bar), asked)
    rows_bar, y_bar, total = in_one_kernel(walk, local, cotangents, problem, perturbed, moving, setup, size)
    steps = k * np.int32(length) + np.arange(length, dtype=np.int32)
    taken = lambda x: jnp.where(steps < trajectory.count, x, 0)
    starts_bar, ends_bar = taken(row_start(rows_bar[size:])), taken(row_end(rows_bar[size:]))
    points_bar = ends_bar + jnp.append(starts_bar[1:], bars.start) + jnp.where(steps == trajectory.count - 1, t_bar, 0)
    depends_on = read_some(ends.numbers, k * np.int32(length), length)[:, -1]
    more = mesh_cotangents(trajectory.sources, depends_on, taken(points_bar))
    return Bars(
        y=y_bar,
        rows=rows_bar[:size],
        start=starts_bar[0],
        problem=jax.tree.map(jnp.add, bars.problem, total),
        mesh=jax.tree.map(jnp.add, bars.mesh, more),
        ts=ts_bar,
    )


def empty_output(problem: Problem, ts: Float[Array, " times"]) -> Inexact[Array, "times k"]:
    """Room for what is saved at `ts`."""
    saved = jax.eval_shape(lambda: problem.observed(problem.t0, problem.y0))
    return jnp.zeros((len(ts), *saved.shape), saved.dtype)


def _observed_back(k, trajectory: Trajectory, rows, ys_bar, ts, problem: Problem, perturbed: Any, setup: Setup):
    """The cotangents of (rows, ts, the problem's perturbed variables) through what was saved in segment k."""
    past: Any = trajectory.past
    side = "left" if problem.kicks is None else "right"
    numbers = jnp.searchsorted(past.starts, ts, side=side, method="scan").astype(jnp.int32) - 1
    numbers = jnp.clip(numbers, 0, jnp.maximum(trajectory.count - 1, 0))
    mine = numbers // np.int32(setup.segment) == k
    places = jnp.clip(numbers - _base(k, setup), 0, len(rows) - 1)
    variables, constants = eqx.partition(problem, eqx.is_inexact_array)
    variables, fixed = eqx.partition(variables, perturbed)
    constants = eqx.combine(constants, fixed)
    like = (problem.y0.dtype, problem.y0.size)

    def saved(rows, ts, variables):
        problem = eqx.combine(variables, constants)
        states = evaluate(*split_rows(rows[places]), ts, *like)
        # (Where a time lies in another segment, its state is not there.)
        states = jnp.where(mine[:, None], states, lax.stop_gradient(problem.y0))
        return jax.vmap(problem.observed)(ts, states)

    _, transpose = jax.vjp(saved, rows, ts, variables)
    return transpose(jnp.where(mine[:, None], ys_bar, 0))


def _base(k, setup: Setup):
    """The number of the step that is row 0 when segment k is taken again."""
    return k * np.int32(setup.segment) - np.int32(setup.memory)  # type: ignore[arg-type]


def _retaken(k, trajectory: Trajectory, snapshots: Snapshot, problem: Problem, setup: Setup) -> Trajectory:
    """The trajectory of segment k, taken once more: rows of the ring at its start, and behind them its own."""
    snapshot = jax.tree.map(lambda all: read(all, k), snapshots)
    count = jnp.clip(trajectory.count - k * np.int32(setup.segment), 0, setup.segment)
    own = jnp.zeros((setup.segment, snapshots.rows.shape[-1]), snapshots.rows.dtype)
    rows = jnp.concatenate([snapshot.rows, own])
    n = problem.delays.size
    links = jnp.zeros((len(rows), len(setup.method.nodes) * n + n + 1), jnp.int32)
    start = (rows, Record(links, None, n), snapshot.y, snapshot.pointers, snapshot.last)
    rows, record = in_one_kernel(_take_again, start, k, count, trajectory, problem, setup)
    total = np.int32(setup.memory) + count  # type: ignore[arg-type]
    past = Past(rows, jnp.zeros(0, problem.t0.dtype), total, total)
    return dataclasses.replace(trajectory, past=past, record=record, count=total)


def _take_again(start: tuple, k, count, trajectory: Trajectory, problem: Problem, setup: Setup):
    """(The rows, the record) with the steps of segment k. A row is written before the next step reads, so that the buffer is
    not copied (`_staged/_loop.py`)."""
    rows, record, y, pointers, last = start
    size, base, first = len(rows) - setup.segment, _base(k, setup), k * np.int32(setup.segment)
    ends: Any = trajectory.record
    past: Any = trajectory.past
    sources: Any = trajectory.sources
    if problem.kicks is not None:
        before = declared_jump(read(ends.numbers, jnp.maximum(first - 1, 0))[-1])
        y = problem.kicked(jnp.where(first > 0, before, -1), read(past.starts, first), y)

    def step(state):
        j, rows, record, pending, y, pointers, last = state
        rows = write(rows, j + np.int32(size - 1), pending)
        i = jnp.minimum(first + j, trajectory.count - 1)
        t = read(past.starts, i)
        t_end = jnp.where(i == trajectory.count - 1, trajectory.t_end, read(past.starts, i + 1))
        numbers = read(ends.numbers, i)
        sides = sides_at(sources, numbers[:-1], problem)
        pointers = jnp.maximum(pointers, first_rows(sources, numbers[:-1]))
        ahead = lambda pointers: jnp.stack([read_some(past.starts, pointer, WINDOW) for pointer in jnp.unstack(pointers)])
        shortest = shortest_step(t, problem)
        pointers, window = search_window(ahead, pointers, (t, t_end), problem, sides, shortest)
        queries = query_times(setup.method, t, t_end, problem.delays)
        found = find_rows(window, pointers, queries, sides, last)
        links = jnp.where(found < 0, found, jnp.maximum(found - base, 0))
        seen = read_each(rows, jnp.maximum(links, 0).reshape(-1)).reshape(*links.shape, -1)
        delayed = delayed_states(problem, setup.method, queries, links, *split_rows(seen), sides)
        slope = start_slope(problem, t, y, delayed)
        new = take_step(setup.solver, setup.method, problem, t, t_end, y, slope, delayed)
        y_end = new.y_end if problem.kicks is None else problem.kicked(declared_jump(numbers[-1]), t_end, new.y_end)
        record = record.write(j + np.int32(size), links, numbers[:-1], numbers[-1], [])
        pointers = jnp.maximum(found[setup.method.last_node], 0)
        row = make_row(setup.method, t, t_end, y, new.increments, rows.dtype)
        return j + 1, rows, record, row, y_end, pointers, jnp.where(t_end > t, i, last)

    steps = unvmap_max(count)
    init = (jnp.zeros((), jnp.int32), rows, record, rows[size - 1], y, pointers, last)
    j, rows, record, pending, *_ = lax.while_loop(lambda state: state[0] < steps, step, init)
    return write(rows, j + np.int32(size - 1), pending), record
