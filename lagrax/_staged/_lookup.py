"""What a stage sees of the past: found and read while the step is being taken.

Rows are found by hunting from the row that was found last: one or two comparisons, in either direction. A lag reads one
piece of the past (`_sources.py`). Where it looks beyond the ends of the piece, it sees the smooth continuation of the piece:
a step that runs over a kink is smooth all the same, and where it met the kink is a root on its own polynomial
(`_crossing.py`).
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int, PyTree

from .._past import INITIAL_FUNCTION, Past, evaluate, evaluate_slope, split_rows
from .._problem import Problem
from .._xla._buffer import read_each
from .._xla._compat import unvmap_any
from .._xla._fold import any_of
from .._xla._neighbours import IN_SINGLE, ROUNDINGS, early
from ._sources import Sources


class View(eqx.Module):
    """The past as a step from time t sees it: for each lag, rows `first` to `last`, or the initial function.

    If a lag's piece is `open`, reaching up to now, what lies after t is the step itself: row number `past.count`.
    """

    past: Past
    t: Float[Array, ""]
    first: Int[Array, " n"]
    last: Int[Array, " n"]
    initial: Bool[Array, " n"]
    open: Bool[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    pieces: Int[Array, " n"]
    """The lags' pointers into the sources."""
    start: Int[Array, ""]
    """Which source is t0."""
    tracked: tuple[bool, ...] = eqx.field(static=True)
    overlaps: tuple[bool, ...] = eqx.field(static=True)
    slopes: tuple[bool, ...] = eqx.field(static=True)

    def of(self, lags: list[int]) -> "View":
        """What some of the lags see."""
        pick = lambda x: x[np.array(lags)]
        where = lambda v: (v.first, v.last, v.initial, v.open, v.lower, v.upper, v.pieces)
        picked = eqx.tree_at(where, self, [pick(x) for x in where(self)])
        flags = {name: tuple(getattr(self, name)[i] for i in lags) for name in ("tracked", "overlaps", "slopes")}
        return dataclasses.replace(picked, **flags)

    def find(self, times: Float[Array, " n"], guesses: Int[Array, " n"], problem: Problem) -> Int[Array, " n"]:
        """The row that each lag reads, near its guess."""
        tracked, overlaps = np.array(self.tracked), np.array(self.overlaps)
        times, starts = lax.stop_gradient(times), self.past.starts
        held = choose(np.array(self.slopes), self._off_short_rows(times, problem), times)

        def move(k):
            ahead = (k < self.last) & (read_each(starts, k + 1) <= held)
            behind = (k > self.first) & (read_each(starts, k) > held)
            return jnp.where(ahead, 1, jnp.where(behind, -1, 0)).astype(jnp.int32)

        guess = jnp.clip(guesses, self.first, jnp.maximum(self.last, self.first))
        hunt = lambda carry: (carry[0] + carry[1], move(carry[0] + carry[1]))
        number, _ = lax.while_loop(lambda carry: any_of(carry[1] != 0), hunt, (guess, move(guess)))
        own = choose(overlaps, self.open & ((times > self.t) | (self.first > self.last)), jnp.zeros_like(self.open))
        initial = choose(tracked, self.initial, times < problem.t0)
        return jnp.where(initial, INITIAL_FUNCTION, jnp.where(own, self.past.count, number))

    def _off_short_rows(self, times: Float[Array, " n"], problem: Problem) -> Float[Array, " n"]:
        """Times near those given, by rounding, that no row of few floats holds: between two lags that look at one kink there
        may be one, whose derivative is known and whose curvature is not. What is read is read at the times given."""
        slack = slack_of(problem)
        return jnp.minimum(times, self.upper - 2 * slack) + slack


def slack_of(problem: Problem) -> Float[Array, ""]:
    """How exactly a step knows where it looks: by how much a lag may look beyond an end of its piece because of rounding."""
    info = jnp.finfo(problem.t0.dtype)
    roundings = 2 * ROUNDINGS if info.bits == 64 else 8 * IN_SINGLE
    return roundings * info.eps * jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))


def frozen(tree: PyTree) -> PyTree:
    """The tree without derivatives."""
    return jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, tree)


def choose(flags: np.ndarray, chosen: Array, other: Array) -> Array:
    """`jnp.where` for flags known in advance: nothing is computed where all lags are alike."""
    return chosen if np.all(flags) else jnp.where(flags, chosen, other) if np.any(flags) else other


def flags(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(Which lags are tracked, which may look into the step itself)."""
    return np.array([lag.inner.track for lag in problem.lags]), np.array([lag.overlaps for lag in problem.lags])


def slope_flags(problem: Problem) -> np.ndarray:
    """Which lags stand for the derivative of the state."""
    return np.array([lag.reads_slope for lag in problem.lags])


def look_back(past: Past, sources: Sources, t: Float[Array, ""], problem: Problem) -> View:
    """The pieces of the past that the lags read from time t on."""
    tracked, overlaps = flags(problem)
    pointers, end = sources.pointers, past.count - 1
    lower, upper = lax.stop_gradient(sources.bounds())
    is_open = pointers >= sources.size
    first = jnp.where(pointers > 0, read_each(sources.rows, jnp.maximum(pointers - 1, 0)), 0)
    last = jnp.where(is_open, end, read_each(sources.ends, pointers))
    return View(
        past=past,
        t=lax.stop_gradient(t),
        first=choose(tracked, first, jnp.zeros_like(first)),
        last=choose(tracked, last, jnp.full_like(last, end)),
        initial=pointers <= sources.start,
        open=choose(tracked, is_open, jnp.ones_like(is_open)),
        lower=choose(tracked, lower, jnp.full_like(lower, -jnp.inf)),
        upper=choose(tracked, upper, jnp.full_like(upper, jnp.inf)),
        pieces=pointers,
        start=sources.start,
        tracked=tuple(map(bool, tracked)),
        overlaps=tuple(map(bool, overlaps)),
        slopes=tuple(map(bool, slope_flags(problem))),
    )


def delayed_states(
    problem: Problem,
    times: Float[Array, " n"],
    links: Int[Array, " n"],
    rows: Inexact[Array, "n row"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
) -> Inexact[Array, "n d"]:
    """The delayed states at the looked-up times: from the rows found, or from the initial function where `links` says so."""
    like = (problem.y0.dtype, problem.y0.size)
    past, reads_slope = evaluate(*split_rows(rows), times, *like), slope_flags(problem)
    if any(reads_slope):
        past = choose(reads_slope[:, None], evaluate_slope(*split_rows(rows), times, *like), past)
    is_initial = links == INITIAL_FUNCTION
    if callable(problem.history):
        before = lax.cond(
            unvmap_any(is_initial),
            lambda: _from_history(problem, times, lower, upper),
            lambda: jnp.zeros_like(past),
        )
    else:
        states = jnp.broadcast_to(problem.history, past.shape)
        before = choose(reads_slope[:, None], jnp.zeros_like(states), states)
    return jnp.where(is_initial[:, None], before, past)


def _from_history(problem: Problem, times: Float[Array, " n"], lower, upper) -> Inexact[Array, "n d"]:
    """The initial function, never asked outside the piece of it that a lag reads; beyond, continued by its tangent there.

    Its derivatives are continued by tangents too, `φ' + (t - e) φ''` behind the end e: those of a tangent that is held, of
    which a step sees a little before it is left at e, put gradients of solves that continue each other off by 1e-7.
    """
    edge = jnp.minimum(upper, problem.t0)
    inside = lax.stop_gradient(jnp.clip(times, -early(-lower), early(edge)))
    beyond = lax.stop_gradient(times) - inside
    states, slopes = jax.jvp(problem.initial_delayed, (times - beyond,), (jnp.ones_like(times),))
    tangent = beyond[:, None].astype(states.dtype) * slopes
    return states + jnp.where((beyond == 0)[:, None], jnp.zeros_like(states), tangent)
