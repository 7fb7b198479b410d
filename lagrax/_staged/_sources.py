"""The kinks of the solution, and which piece of the past, between two of them, each lag reads.

As in `_planned/_breakpoints.py`, a kink at a source reappears, one derivative smoother, wherever a lag looks at it. But when
that will be is not known in advance, and a lag may pass a source in either direction. So a lag has a pointer: it reads the
piece between sources `pointer - 1` and `pointer`, and a step on which it leaves the piece is made to end there
(`_crossing.py`).
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._lag import Constant
from .._planned._breakpoints import JUMP, KINK, roughest
from .._problem import Problem
from .._xla._buffer import read, read_each, write


class Sources(eqx.Module):
    """The breakpoints hit so far, in order of time: the jumps declared before t0, t0 (number `start`), those after it."""

    times: Float[Array, " sources"]
    """∞ beyond `size`. They carry derivatives in forward mode."""
    levels: Int[Array, " sources"]
    rows: Int[Array, " sources"]
    """The first row after each source."""
    ends: Int[Array, " sources"]
    """The last row before each source. (Rows between the two have length zero, where several lags look at it at once.)"""
    size: Int[Array, ""]
    start: Int[Array, ""]
    pointers: Int[Array, " n"]
    next_jump: Int[Array, ""]

    def kinks(
        self, problem: Problem, t_end: Float[Array, ""], most: int
    ) -> tuple[Float[Array, " most"], Int[Array, " most"]]:
        """The sources that a solve which continues this one may look back at, and their levels: the roughest first, then the
        latest. They move with the solution. Unused places hold -∞."""
        return roughest(lax.stop_gradient(self.times), self.levels, self.times, (-jnp.inf, t_end), most)

    def bounds(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The ends of the piece that each lag reads."""
        lower = jnp.where(self.pointers > 0, read_each(self.times, jnp.maximum(self.pointers - 1, 0)), -jnp.inf)
        return lower, read_each(self.times, self.pointers)

    def append(self, new: "Entry", recorded: Bool[Array, ""], merged: Bool[Array, ""]) -> tuple["Sources", "Entry"]:
        """(The sources with one more, what is to be `written` of it), if it is to be recorded; if `merged`, as one with the
        last, which is at the same time."""
        place = jnp.where(merged, self.size - 1, self.size)
        old = self.read(place)
        both = Entry(place, old.time, jnp.minimum(old.level, new.level), new.row, old.end)
        kept = lambda a, b, c: jnp.where(recorded, jnp.where(merged, a, b), c)
        entry = jax.tree.map(kept, both, eqx.tree_at(lambda e: e.place, new, place), old)
        return eqx.tree_at(lambda s: s.size, self, self.size + (recorded & ~merged).astype(jnp.int32)), entry

    def read(self, place: Int[Array, ""]) -> "Entry":
        return Entry(place, *(read(buffer, place) for buffer in (self.times, self.levels, self.rows, self.ends)))

    def written(self, entry: "Entry") -> "Sources":
        """With an entry in its place. (At the start of an iteration, before all reads: `_loop.py` says why.)"""
        put = lambda buffer, value: write(buffer, entry.place, value)
        buffers = (put(self.times, entry.time), put(self.levels, entry.level), put(self.rows, entry.row))
        where = lambda s: (s.times, s.levels, s.rows, s.ends)
        return eqx.tree_at(where, self, (*buffers, put(self.ends, entry.end)))


class Entry(eqx.Module):
    """One source, and its place in the list."""

    place: Int[Array, ""]
    time: Float[Array, ""]
    level: Int[Array, ""]
    row: Int[Array, ""]
    end: Int[Array, ""]


def initial_sources(problem: Problem, max_steps: int) -> Sources:
    """Before the first step: the jumps declared in the past, then t0. No lag has been seated yet."""
    jumps = problem.jump_ts.size
    past = jnp.sum(problem.jump_ts < problem.t0, dtype=jnp.int32)
    # A source ends a row or is a root, so there is room for all of them; the last place stays free, as "no more sources".
    capacity = jumps + max_steps + 2
    times = jnp.full(capacity, jnp.inf, problem.t0.dtype)
    levels = jnp.full(capacity, JUMP, jnp.int32)
    if jumps:
        before = jnp.where(problem.jump_ts < problem.t0, problem.jump_ts, jnp.inf)
        times = lax.dynamic_update_slice(times, before, (np.int32(0),))
    if problem.roughness is not None:
        levels = lax.dynamic_update_slice(levels, problem.roughness, (np.int32(0),))
    return Sources(
        times=write(times, past, problem.t0),
        levels=write(levels, past, jnp.asarray(JUMP if problem.may_jump else KINK, jnp.int32)),
        rows=jnp.zeros(capacity, jnp.int32),
        ends=jnp.full(capacity, -1, jnp.int32),
        size=past + 1,
        start=past,
        pointers=jnp.zeros(len(problem.lags), jnp.int32),
        next_jump=problem.jumps_before(),
    )


def seat(sources: Sources, looked_up: Float[Array, " n"], slack) -> Sources:
    """With every lag in the piece that its time lies in, one that is on an end by `slack` staying where it is."""
    times = lambda p: lax.stop_gradient(read_each(sources.times, p))
    above = lambda p: looked_up >= times(p) + slack
    below = lambda p: (p > 0) & (looked_up < times(jnp.maximum(p - 1, 0)) - slack)
    up = lax.while_loop(lambda p: jnp.any(above(p)), lambda p: p + above(p).astype(jnp.int32), sources.pointers)
    down = lax.while_loop(lambda p: jnp.any(below(p)), lambda p: p - below(p).astype(jnp.int32), up)
    return eqx.tree_at(lambda s: s.pointers, sources, down)


def next_stop(sources: Sources, problem: Problem) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """(Where steps have to end next, whether that is a declared jump and not t1)."""
    if not problem.jump_ts.size:
        return problem.t1, jnp.array(False)
    jumps = jnp.append(problem.jump_ts, jnp.inf)
    jump = read(jumps, sources.next_jump)
    rounding = 8 * jnp.finfo(jump.dtype).eps * jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
    return jnp.where(jump < problem.t1 - rounding, jump, problem.t1), jump < problem.t1 - rounding


def next_echo(sources: Sources, problem: Problem, after: Float[Array, ""]) -> Float[Array, ""]:
    """When a constant delay looks at a source next, which is known in advance: a step that ends there is not taken twice."""
    echoes = [jnp.full((), jnp.inf, after.dtype)]
    for i, lag in enumerate(problem.lags):
        if isinstance(lag.inner, Constant) and lag.inner.track:
            echo = lax.stop_gradient(read(sources.times, sources.pointers[i]) + jnp.asarray(lag.inner.delay, after.dtype))
            echoes.append(jnp.where(echo > after, echo, jnp.inf))
    return functools.reduce(jnp.minimum, echoes)


def pass_end(sources: Sources, lag: Int[Array, ""], up, lands, jumps, t, row: Int[Array, ""], deepest: int, keeps, slack):
    """Past the end of a step at time t: if it `lands` on the end of the piece that a lag reads, or on a declared jump
    (`jumps`). Returns (the sources, the entry to be written, the source that the lag looked at).

    (Nothing is selected over whole buffers: they are long.)
    """
    pointer = read(sources.pointers, lag)
    parent = jnp.where(up, pointer, jnp.maximum(pointer - 1, 0))
    looked_at = read(sources.levels, parent)
    # One derivative smoother, but as rough as it was where a derivative is looked at (by the lags that `keeps` marks).
    echo = jnp.where(read(jnp.asarray(keeps), lag), jnp.maximum(looked_at, KINK), looked_at + 1)
    level = jnp.where(jumps, KINK, echo)
    moved = write(sources.pointers, lag, jnp.where(lands, jnp.where(up, pointer + 1, parent), pointer))
    # Two delays that look at one kink at one time would double the number of sources with every delay. But jumps of y have
    # echoes of their own: there each delay has a gradient of its own.
    last = lax.stop_gradient(read(sources.times, sources.size - 1))
    merged = lands & (lax.stop_gradient(t) - last <= slack) & (looked_at > JUMP)
    entry = Entry(sources.size, t, level.astype(jnp.int32), row, row - 1)
    sources, entry = sources.append(entry, jumps | (lands & (level < deepest)), merged)
    where = lambda s: (s.pointers, s.next_jump)
    return eqx.tree_at(where, sources, (moved, sources.next_jump + jumps.astype(jnp.int32))), entry, parent
