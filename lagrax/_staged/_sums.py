"""Integrals over the past as a staged step sees them: over the history, the rows, and the step itself.

An integral from `t - far` to `t - near` starts in the row (or the history) that the delay `far` looks at, and ends in the
one that the delay `near` does; rows in between count whole. A row counts up to the start of the next, not to its own end: a
step may have been left before that (`_crossing.py`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, Int

from .._distributed._sum import Sum, gauss_rule
from .._past import INITIAL_FUNCTION, row_start, state_at
from .._problem import Problem
from .._xla._buffer import read, write
from .._xla._compat import unvmap_any, unvmap_max
from .._xla._neighbours import early
from ._lookup import View

HISTORY_PANELS = 32
"""Into how many parts a piece of the history is divided at most, by Gauss's rule with eight points each."""


def edge_links(
    problem: Problem, view: View, times: Float[Array, " nodes"], guesses: Int[Array, " n"]
) -> Int[Array, "nodes n"]:
    """The rows that the edges of the sums look at from these times. (What other delays look at is not known yet.)"""
    edges = sorted({lag for one in problem.sums.parts for lag in one.lags})
    picked = view.of(edges)
    delays = jnp.stack([problem.lags[lag].delay for lag in edges]).astype(times.dtype)
    found = jax.vmap(lambda t: picked.find(t - delays, guesses[np.array(edges)], problem))(times)
    unknown = jnp.zeros(len(times), jnp.int32)
    # (Column by column: a scatter would keep the loop from being one kernel.)
    columns = [found[:, edges.index(lag)] if lag in edges else unknown for lag in range(len(problem.lags))]
    return jnp.stack(columns, axis=1)


def row_sums(
    problem: Problem, rows, number, start, times: Float[Array, " nodes"], links, order: int
) -> Inexact[Array, "nodes q"]:
    """The shares of all rows before `number`, the step that starts at `start`, seen from several times in it."""
    first, last = row_range(problem, links, number)
    at_row = lambda r: shares(problem, read(rows, r), next_start(rows, r, number, start), r, times, links, order)
    nothing = jnp.zeros((len(times), problem.sums.size), problem.y0.dtype)
    return lax.fori_loop(first, last, lambda r, total: total + at_row(r), nothing)


def row_range(
    problem: Problem, links: Int[Array, "nodes n"], number: Int[Array, ""]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """(The first row that counts for any of the sums, the first that does not)."""
    far = np.array([one.lags[-1] for one in problem.sums.parts])
    near = np.array([one.lags[0] for one in problem.sums.parts])
    first = jnp.maximum(jnp.min(links[:, far]), 0)
    return first, jnp.minimum(jnp.max(links[:, near]) + 1, number)


def next_start(rows, r: Int[Array, ""], number: Int[Array, ""], start: Float[Array, ""]) -> Float[Array, ""]:
    """Where row r ends for those who look back."""
    following = row_start(read(rows, jnp.minimum(r + 1, jnp.maximum(number - 1, 0))))
    return jnp.where(r + 1 == number, start, following)


def shares(problem: Problem, row, end, r, times: Float[Array, " nodes"], links, order: int) -> Inexact[Array, "nodes q"]:
    """The share of row number r, which counts up to `end`, in each of the sums, seen from several times."""
    return jax.vmap(lambda t, link: _share(problem, row, row_start(row), end, r, t, link, order))(times, links)


def own_sums(problem: Problem, row, start, t: Float[Array, ""], links: Int[Array, " n"], number, order: int):
    """The share of the step that is being taken, seen from time t in it."""
    return _share(problem, row, start, t, number, t, links, order)


def _share(problem: Problem, row, start, end, r, t, links: Int[Array, " n"], order: int) -> Inexact[Array, " q"]:
    states = _states(problem, row)
    rule = gauss_rule(order)

    def stretch(one: Sum, near, far, near_lag: int, far_lag: int):
        first, last = links[far_lag], links[near_lag]
        counts = (first <= r) & (r <= last)
        a = jnp.where(counts & (r == first), t - far, start)
        b = jnp.where(counts, jnp.where(r == last, t - near, end), start)
        return one.over(t, (a, b), states, problem.args, rule, problem.y0.dtype)

    return jnp.concatenate([sum(stretch(one, *window) for window in one.windows) for one in problem.sums.parts])


def _states(problem: Problem, row) -> Callable:
    at = lambda u: problem.state(state_at(row, u, problem.y0))
    return jax.vmap(at)


def history_sums(problem: Problem, times: Float[Array, " nodes"], links, pieces: Int[Array, " n"], t0: Int[Array, ""]):
    """The shares of the history, seen from several times. `pieces` are the pointers of the delays into the sources, of which
    number `t0` is t0."""
    nothing = jnp.zeros((len(times), problem.sums.size), problem.y0.dtype)
    far = np.array([one.lags[-1] for one in problem.sums.parts])
    looks = unvmap_any(links[:, far] == INITIAL_FUNCTION)
    seen = lambda: lax.map(lambda node: _history_share(problem, node[0], node[1], pieces, t0), (times, links))
    return lax.cond(looks, seen, lambda: nothing)


def _history_share(problem: Problem, t, links: Int[Array, " n"], pieces, start) -> Inexact[Array, " q"]:
    """Piece after piece: those between the jumps declared before t0, and the one that ends at t0, are the first sources."""
    count = problem.jump_ts.size + 1
    number = np.arange(count, dtype=np.int32)
    known = jnp.where(number < start, jnp.append(problem.jump_ts, problem.t0), problem.t0)
    starts = jnp.append(jnp.full(1, -jnp.inf, t.dtype), known[:-1])
    panels = max(4, HISTORY_PANELS // count)

    def stretch(one: Sum, near, far, near_lag: int, far_lag: int):
        begins, ends = links[far_lag] == INITIAL_FUNCTION, links[near_lag] == INITIAL_FUNCTION
        first, last = pieces[far_lag], jnp.where(ends, pieces[near_lag], start)
        counts = begins & (first <= number) & (number <= last)
        a = jnp.where(number == first, t - far, jnp.where(counts, starts, problem.t0))
        b = jnp.where(counts, jnp.where(ends & (number == last), t - near, known), a)
        a = jnp.where(counts, a, b)
        # (What does not count is nothing times a value, which must be a number.)
        limits = (jnp.where(counts, starts, -jnp.inf), jnp.where(counts, known, problem.t0))
        # (In turn: each has as many parts as it needs.)
        return jnp.sum(lax.map(lambda piece: _panels(one, problem, t, piece, panels), (a, b, *limits)), axis=0)

    return jnp.concatenate([sum(stretch(one, *window) for window in one.windows) for one in problem.sums.parts])


def _panels(one: Sum, problem: Problem, t, piece, most: int) -> Inexact[Array, " size"]:
    """The integral over [a, b] of a piece of the history, in as many parts as it needs, `most` at most."""
    a, b, lower, upper = piece
    low, high = lax.stop_gradient((-early(-lower), early(upper)))
    needed = lax.stop_gradient(jnp.clip(jnp.ceil((b - a) / problem.sums.longest_part), 1, most))

    def states(times):
        # (Rounding may put a point on a jump.)
        kept = times + lax.stop_gradient(jnp.clip(times, low, high) - times)
        return jax.vmap(problem.state)(problem.initial_function(kept))

    def part(number):
        at = jnp.minimum(number, needed - 1)
        ends = (a + (b - a) * at / needed, a + (b - a) * (at + 1) / needed)
        share = one.over(t, ends, states, problem.args, np.polynomial.legendre.leggauss(8), problem.y0.dtype)
        return jnp.where(number < needed, share, jnp.zeros_like(share))

    def add(total, number):
        return total + lax.cond(unvmap_any(number < needed), part, lambda _: jnp.zeros_like(total), number), None

    numbers = jnp.arange(most).astype(t.dtype)
    return lax.scan(jax.checkpoint(add), jnp.zeros(one.size, problem.y0.dtype), numbers)[0]


def pull_rows(problem_of: Callable, variables: Any, rows, number, times_of: Callable, ends, links, order: int, bars):
    """The transpose of `row_sums`: the cotangents (of all rows, added to what is given; of the ends of the step; of the
    variables), of those (of the sums, of all rows).

    `problem_of(variables)` is the problem, `times_of(ends)` are the times from which the sums are seen.
    """
    sums_bar, rows_bar = bars
    start = (rows_bar, *jax.tree.map(jnp.zeros_like, (ends, variables)))
    problem = problem_of(variables)
    first, last = row_range(problem, links, number)

    def share(row, end, ends, variables, r):
        return shares(problem_of(variables), row, end, r, times_of(ends), links, order)

    def body(r, bars):
        rows_bar, ends_bar, variables_bar = bars
        counts = (r >= first) & (r < last)
        at = jnp.clip(r, 0, jnp.maximum(number - 1, 0))
        row, is_last = read(rows, at), at + 1 == number
        _, transpose = jax.vjp(lambda *x: share(*x, at), row, next_start(rows, at, number, ends[0]), ends, variables)
        row_bar, end_bar, more_ends, more = jax.tree.map(
            lambda x: jnp.where(counts, x, jnp.zeros_like(x)), transpose(sums_bar)
        )
        rows_bar = write(rows_bar, at, read(rows_bar, at) + row_bar)
        following = jnp.minimum(at + 1, rows.shape[0] - 1)
        _, to_start = jax.vjp(row_start, row)
        rows_bar = write(rows_bar, following, read(rows_bar, following) + to_start(jnp.where(is_last, 0, end_bar))[0])
        ends_bar = (ends_bar[0] + more_ends[0] + jnp.where(is_last, end_bar, 0), ends_bar[1] + more_ends[1])
        return rows_bar, ends_bar, jax.tree.map(jnp.add, variables_bar, more)

    # Lanes of a batch walk over the same rows, so that none has its rows copied.
    return lax.fori_loop(-unvmap_max(-first), unvmap_max(last), body, start)
