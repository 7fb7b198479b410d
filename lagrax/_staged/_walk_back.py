"""The backward pass over staged steps: the exact derivative of what was computed.

A step is a function of its start, of the rows that its stages read, perhaps of its own row, and of the problem; backwards,
its transpose is applied, as in `_planned/_walk_back.py`. Two things are new.

*A step that looked into itself* solves `r = G(r, …)`. By the implicit function theorem the cotangent w of its row r is to
be replaced by v with `v = w + G_rᵀ v`, which is found by sweeps as r was. (To differentiate the last sweeps would be wrong,
by 66, 4 and 0.2 % for one, two and three of them on a pantograph equation.)

*A breakpoint* at which lag i looks at source ξ is where `c(t) = α_i(t, p(t)) - ξ` is zero on the polynomial p of its step.
It moves with everything that c depends on: with t̄, the cotangent of its time, `μ = -t̄ / c'(t)` is that of c.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, Int

from .._method import node_times
from .._past import add_rows, row_end, row_start, row_state, state_at
from .._problem import Problem
from .._results import failed
from .._setup import Setup
from .._trajectory import DECLARED, END, Cotangents, Trajectory, add_to, declared_jump, spoil
from .._xla._buffer import read, write
from .._xla._compat import unvmap_max
from .._xla._kernel import in_one_kernel
from .._xla._neighbours import inside, just_after
from ._crossing import is_met, miss_at
from ._lookup import delayed_states, flags
from ._record import Note
from ._sources import Sources
from ._sums import history_sums, pull_rows, row_sums
from ._sweep import Start, run_stages, with_sums

SWEEPS = 64
"""How often a transposed step is repeated at most."""

SETTLED, LOST = 64, 2.0**24
"""The change of a cotangent, in roundings of it, at which the transposed sweeps stop, and that with which they have failed:
then a step was so long that its sweeps do not converge, which does not show where the solution stands still."""

TANGENT = 1e-10
"""The speed |c'| below which a lag only touches a source: no derivative exists, and the breakpoint is held."""


class Bars(eqx.Module):
    """The cotangents while walking back: of the state and time at which the last step walked over starts, of its row (`row`,
    read in advance), of all rows, of the sources' times, of t1, of the declared jumps, and of the problem."""

    y: Inexact[Array, " d"]
    t: Float[Array, ""]
    row: Inexact[Array, " row"]
    rows: Inexact[Array, "rows row"]
    sources: Float[Array, " sources"]
    t1: Float[Array, ""]
    jump_ts: Float[Array, " jumps"]
    problem: Any
    evaluations: Int[Array, ""]


def walk_back(trajectory: Trajectory, bars: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    """(The cotangent of the problem's perturbed variables, how often the vector field was evaluated)."""
    return in_one_kernel(_walk, trajectory, bars, problem, perturbed, setup)


def _walk(trajectory: Trajectory, given: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    variables, constants = eqx.partition(problem, eqx.is_inexact_array)
    variables, fixed = eqx.partition(variables, perturbed)
    constants = eqx.combine(constants, fixed)
    last, steps = jnp.maximum(trajectory.count - 1, 0), unvmap_max(trajectory.count)

    def body(carry):
        k, bars = carry
        i = trajectory.count - 1 - k
        # A lane whose steps are all walked over adds nothing (but rows and sources, as long as they are, are not selected).
        active = i >= 0
        masked = lambda tree: jax.tree.map(lambda x: jnp.where(active, x, jnp.zeros_like(x)), tree)
        given = eqx.tree_at(lambda b: (b.y, b.t, b.row), bars, masked((bars.y, bars.t, bars.row)))
        new = _step_back(jnp.maximum(i, 0), given, active, trajectory, variables, constants, setup)
        ends = lambda b: (b.y, b.t)
        kept = jax.tree.map(lambda a, b: jnp.where(active, a, b), ends(new), ends(bars))
        return k + 1, eqx.tree_at(ends, new, kept)

    first = Bars(
        y=given.y_end,
        t=given.t_end,
        row=read(given.rows, last),
        rows=given.rows,
        sources=jnp.zeros_like(trajectory.sources.times) if given.sources is None else given.sources,
        t1=jnp.zeros_like(problem.t1),
        jump_ts=jnp.zeros_like(problem.jump_ts),
        problem=jax.tree.map(jnp.zeros_like, variables),
        evaluations=jnp.zeros((), jnp.int32),
    )
    _, bars = lax.while_loop(lambda carry: carry[0] < steps, body, (jnp.zeros((), jnp.int32), first))
    declared = bars.jump_ts + jnp.where(
        problem.jump_ts < problem.t0, bars.sources[: problem.jump_ts.size], jnp.zeros_like(bars.jump_ts)
    )
    t0_bar = bars.t + read(bars.sources, trajectory.sources.start)
    more = (bars.y, t0_bar, bars.t1, declared)
    total = add_to(bars.problem, lambda p: (p.y0, p.t0, p.t1, p.jump_ts), more)
    return spoil(total, failed(trajectory.result), given.asked), bars.evaluations


def _step_back(i: Int[Array, ""], bars: Bars, active, trajectory: Trajectory, variables, constants, setup: Setup) -> Bars:
    """Over step i. If it is not `active`, all cotangents given are zero, and so are those found."""
    past: Any = trajectory.past
    record: Any = trajectory.record
    sources: Sources = trajectory.sources
    note: Note = record.read(i)
    problem = eqx.combine(variables, constants)
    row, n = read(past.rows, i), len(problem.lags)
    following = read(past.rows, jnp.minimum(i + 1, len(past.rows) - 1))
    left_at = jnp.where(i == trajectory.count - 1, trajectory.t_end, row_start(following))
    located = note.depends_on >= 0
    parent, lag = jnp.maximum(note.depends_on, 0) // n, jnp.maximum(note.depends_on, 0) % n
    t_bar = bars.t + jnp.where(active & (note.source >= 0), read(bars.sources, jnp.maximum(note.source, 0)), 0)

    def leave(row, time, source_time, variables):
        problem = eqx.combine(variables, constants)
        state = state_at(row, time, problem.y0)
        return state, miss_at(problem, row, time, lag, source_time)

    (_, miss), transpose_leaving = jax.vjp(leave, row, left_at, read(sources.times, parent), variables)
    zero, one = jnp.zeros_like(bars.y), jnp.ones_like(left_at)
    row_a, time_a, _, _ = transpose_leaving((bars.y, jnp.zeros_like(one)))
    row_b, speed, _, variables_b = transpose_leaving((zero, one))
    moves = located & (jnp.abs(speed) > TANGENT) & is_met(miss, problem)
    mu = jnp.where(moves, -(t_bar + time_a) / jnp.where(moves, speed, 1), 0)
    row_bar = bars.row + jnp.where(located, row_a + mu.astype(row.dtype) * row_b, 0)
    # The end of a step that was left before it is nobody's time.
    y_end_bar = jnp.where(located, 0, bars.y)

    pulled, evaluations = _transposed_step(i, note, trajectory, variables, constants, setup, y_end_bar, row_bar)
    (start_bar, end_bar), y_bar, rows_bar, variables_bar, sums_bar = pulled
    all_rows = add_rows(bars.rows, jnp.maximum(note.links, 0).reshape(-1), rows_bar.reshape(-1, row.size))
    if problem.sums is not None:
        pull = (i, note, past.rows, variables, constants, setup, sums_bar, all_rows)
        all_rows, more_times, more = _pull_sums(*pull)
        start_bar, end_bar = start_bar + more_times[0], end_bar + more_times[1]
        variables_bar = jax.tree.map(jnp.add, variables_bar, more)
    total = jax.tree.map(lambda a, b, c: a + b + mu.astype(c.dtype) * c, bars.problem, variables_bar, variables_b)
    end_bar = t_bar + end_bar
    is_declared = note.depends_on <= DECLARED
    jump_ts = bars.jump_ts
    if jump_ts.size:
        number = jnp.where(is_declared, DECLARED - note.depends_on, 0)
        jump_ts = write(jump_ts, number, read(jump_ts, number) + jnp.where(is_declared, end_bar, 0))
    return Bars(
        y=y_bar,
        t=start_bar,
        # Read after the writes (`_loop.py` says why).
        row=read(all_rows, jnp.maximum(i - 1, 0)),
        rows=all_rows,
        sources=write(bars.sources, parent, read(bars.sources, parent) - mu),
        t1=bars.t1 + jnp.where(note.depends_on == END, end_bar, 0),
        jump_ts=jump_ts,
        problem=total,
        evaluations=bars.evaluations + jnp.where(active, evaluations, 0),
    )


def _transposed_step(i, note: Note, trajectory: Trajectory, variables, constants, setup: Setup, y_end_bar, row_bar):
    """((The cotangents of the ends of step i, of its state, of the rows it read, of the variables and of the sums over
    earlier rows), evaluations)."""
    past: Any = trajectory.past
    row = read(past.rows, i)
    y = row_state(row, constants.y0 if variables.y0 is None else variables.y0)
    step = lambda times, y, own, rows, variables, sums: _replay(
        times, y, own, rows, eqx.combine(variables, constants), i, note, trajectory.sources, setup, sums
    )
    ends = (row_start(row), row_end(row))
    problem = eqx.combine(variables, constants)
    sums = None
    if problem.sums is not None:
        seen_from, links = _node_times(setup, ends), _node_links(setup, note)
        sums = row_sums(problem, past.rows, i, ends[0], seen_from, links, setup.method.order)
    rows = past.read(note.links)
    _, transpose = jax.vjp(step, ends, y, row, rows, variables, sums)

    def again(carry):
        k, v, *_ = carry
        times_bar, y_bar, own_bar, rows_bar, variables_bar, sums_bar = transpose((y_end_bar, v))
        new = row_bar + own_bar
        size = jnp.max(jnp.abs(new))
        change = jnp.max(jnp.abs(new - v))
        rounding = jnp.finfo(size.dtype).eps * size
        settled = ~(change > SETTLED * rounding) | (k + 1 >= SWEEPS)
        lost = jnp.where(settled & ~(change <= LOST * rounding), jnp.nan, 1)
        pulled = (times_bar, y_bar, rows_bar, variables_bar, sums_bar)
        return k + 1, new, settled, jax.tree.map(lambda x: x * lost.astype(x.dtype), pulled)

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (ends, y, rows, variables, sums))
    start = (jnp.int32(0), row_bar, jnp.array(False), zeros)
    *_, pulled = lax.while_loop(lambda carry: ~carry[2], again, start)
    return pulled, jnp.int32(setup.method.stages)


def _replay(times, y, own, rows: Inexact[Array, "stages n row"], problem: Problem, i, note: Note, sources, setup, sums):
    """(The end of step i, its row), its lookups being those that were made."""
    t, t_end = times
    tracked, _ = flags(problem)
    at_pieces = eqx.tree_at(lambda s: s.pointers, sources, note.pieces)
    lower, upper = lax.stop_gradient(at_pieces.bounds())
    lower, upper = jnp.where(tracked, lower, -jnp.inf), jnp.where(tracked, upper, jnp.inf)
    if problem.sums is not None:
        nodes, seen = _node_times(setup, times), _node_links(setup, note)
        sums = sums + history_sums(problem, nodes, seen, note.pieces, sources.start)

    def states(stage, t, y):
        number = jnp.asarray(stage, jnp.int32)
        times, links = problem.looked_up(t, y), read(note.links, number)
        seen = jnp.where((links == i)[:, None], own[None], read(rows, number))
        return delayed_states(problem, times, links, seen, lower, upper), links

    def look(stage, s, y, _):
        delayed, links = states(stage, s, y)
        return with_sums(problem, setup, delayed, sums, (own, i), t, t_end, stage, s, links), links

    delayed, links = states(0, just_after(t), y)
    delayed = with_sums(problem, setup, delayed, sums, (own, i), t, t_end, 0, just_after(t), links)
    start = Start(t, y, problem.field(just_after(t), y, delayed), links, links)
    sweep = run_stages(problem, setup, start, t_end, look, own.dtype)
    if problem.kicks is None:
        return sweep.y_end, sweep.row
    return problem.kicked(declared_jump(note.depends_on), t_end, sweep.y_end), sweep.row


def _pull_sums(i, note: Note, rows, variables, constants, setup: Setup, sums_bar, rows_bar):
    """The cotangents of (all rows, the ends of step i, the variables) through the sums over earlier rows."""
    row = read(rows, i)
    return pull_rows(
        lambda variables: eqx.combine(variables, constants),
        variables,
        rows,
        i,
        lambda ends: _node_times(setup, ends),
        (row_start(row), row_end(row)),
        _node_links(setup, note),
        setup.method.order,
        (sums_bar, rows_bar),
    )


def _node_times(setup: Setup, ends: tuple) -> Float[Array, " nodes"]:
    return inside(node_times(setup.method, *ends), *ends)


def _node_links(setup: Setup, note: Note) -> Int[Array, "nodes n"]:
    """Which rows the lags read at each node: those that a stage there read."""
    method = setup.method
    stages = np.argmin(np.abs(method.nodes[:, None] - method.c[None]), axis=1)
    return note.links[stages]
