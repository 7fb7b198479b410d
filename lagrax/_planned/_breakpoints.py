"""Where the solution kinks, found one after another as the solution advances.

The solution is not smooth at t0 nor at a declared jump; every delay carries such a kink forward, one derivative smoother
each time, so the kinks lie at `root + Σ_i m_i τ_i` with whole numbers m. They are generated like Hamming numbers: the list
of *sources* hit so far, one pointer per delay into it, and the next breakpoint is `min_i(source[pointer_i] + τ_i)`. The
counts m are kept: a breakpoint's time is computed from them, so that one reached along two paths is one time to the last
bit, and they are its derivative with respect to the delays.

The same pointers say which piece of the past each delay is reading: between sources `pointer - 1` and `pointer`.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._problem import Problem
from .._trajectory import DECLARED, END
from .._xla._buffer import read, read_each, write
from ._lookup import WINDOW, Sides

MOST_BREAKPOINTS = 1024
"""With many delays the smoothest kinks are not tracked, so that one root has at most this many descendants."""

JUMP, KINK = -1, 0
"""Levels of the roots: y itself may jump, or its derivative may. At level k the (k+1)-th derivative jumps."""


class Sources(eqx.Module):
    """The breakpoints hit so far whose echoes are still to come, in order of time.

    `roots`, `counts` and `levels` describe source j: `times[j] = root_times[roots[j]] + counts[j] · delays`.
    """

    times: Float[Array, " sources"]
    roots: Int[Array, " sources"]
    counts: Int[Array, "sources n"]
    levels: Int[Array, " sources"]
    size: Int[Array, ""]
    start: Int[Array, ""]
    """Which source is t0."""
    pointers: Int[Array, " n"]
    next_jump: Int[Array, ""]
    jumps: Int[Array, ""]
    """At how many breakpoints so far the vector field may have jumped."""
    reached: Float[Array, ""]
    """The time of the last breakpoint, or t0."""
    root_count: int = eqx.field(static=True)
    rows: Int[Array, " sources"] | None = None
    """With impulses or many delays, the first row after each source: kicks, or echoes of a jump, at one time have steps of
    length zero between them."""

    def with_source(self, new: "Source", recorded: Bool[Array, ""], merged: Bool[Array, ""], slopes) -> "Sources":
        """With one more, if it is to be recorded; if `merged`, as one with the last, of which it takes the place if it is
        rougher, or as rough and came by more of the delays that look at derivatives, which `slopes` marks.

        (Nothing is selected over whole buffers, which may be long.)
        """
        place, added = jnp.where(merged, self.size - 1, self.size), recorded & ~merged
        level, marked = read(self.levels, place), np.array(slopes or [0] * len(new.counts), np.int32)
        more = new.counts @ marked > read(self.counts, place) @ marked
        written = recorded & (~merged | (new.level < level) | ((new.level == level) & more))

        def put(buffer, value, written=written):
            return write(buffer, place, jnp.where(written, value.astype(buffer.dtype), read(buffer, place)))

        return dataclasses.replace(
            self,
            times=put(self.times, new.time),
            roots=put(self.roots, new.root),
            counts=put(self.counts, new.counts),
            levels=put(self.levels, new.level),
            rows=None if self.rows is None else put(self.rows, new.row, recorded),
            size=self.size + added.astype(jnp.int32),
        )

    def kinks(
        self, problem: Problem, t_end: Float[Array, ""], most: int
    ) -> tuple[Float[Array, " most"], Int[Array, " most"]]:
        """The sources that a solve which continues this one, from t0 on or later, may look back at, and their levels: the
        roughest first, then the latest. They move with the problem they come from. Unused places hold -∞."""
        earliest = problem.t0 - jnp.max(problem.delays)
        return roughest(self.times, self.levels, source_times(self, problem), (earliest, t_end), most)


class Source(eqx.Module):
    """One of them."""

    time: Float[Array, ""]
    root: Int[Array, ""]
    counts: Int[Array, " n"]
    level: Int[Array, ""]
    row: Int[Array, ""]


class Segment(eqx.Module):
    """The smooth piece between two breakpoints: where it ends (or t1 does), and which pieces of the past it sees."""

    end: Float[Array, ""]
    sides: Sides


def deepest_level(order: int, n: int) -> int:
    """Up to which level kinks are tracked: the solver's order, or what `MOST_BREAKPOINTS` leaves room for.

    A jump of the k-th derivative inside a step costs O(h^k) once, so levels up to order - 1 keep the order of the
    solution; one more keeps that of its derivative with respect to the delays.
    """
    level = order
    while level > 1 and math.comb(n + level, level) > MOST_BREAKPOINTS:
        level -= 1
    return level


def mesh_cotangents(
    sources: Sources, depends_on: Int[Array, " points"], points_bar: Float[Array, " points"]
) -> tuple[Float[Array, " n"], Float[Array, " roots"], Float[Array, ""]]:
    """Hands the cotangents of mesh points on to what they depend on: (the delays, the roots, t1)."""
    n = sources.counts.shape[1]
    echo = depends_on >= 0
    parent, delay = jnp.where(echo, depends_on // n, 0), jnp.where(echo, depends_on % n, 0)
    echoes_bar = jnp.where(echo, points_bar, 0)
    sources_bar = jnp.zeros_like(sources.times).at[parent].add(echoes_bar)
    delays_bar = sources_bar @ sources.counts.astype(sources_bar.dtype)
    delays_bar = delays_bar.at[delay].add(echoes_bar)
    declared = depends_on <= DECLARED
    number = jnp.where(declared, DECLARED - depends_on, 0)
    roots_bar = jnp.zeros(sources.root_count, sources_bar.dtype).at[sources.roots].add(sources_bar)
    roots_bar = roots_bar.at[number].add(jnp.where(declared, points_bar, 0))
    return delays_bar, roots_bar, jnp.sum(jnp.where(depends_on == END, points_bar, 0))


def root_times(problem: Problem) -> Float[Array, " roots"]:
    """The times all kinks descend from: the declared jumps, in order, and t0 as the last."""
    return jnp.concatenate([problem.jump_ts, problem.t0[None]])


def initial_sources(problem: Problem, order: int, max_steps: int) -> Sources:
    """Before the first step: the jumps declared in the past, then t0."""
    n, jumps = problem.delays.size, problem.jump_ts.size
    deepest = deepest_level(order, n)
    if problem.slopes:
        # Kinks do not smooth out. But each that is recorded ends a step, or is a root.
        capacity = jumps + max_steps + 2
    else:
        # Sources have levels JUMP … deepest - 1, so each root has at most C(n + deepest, n) of them. The roots always fit.
        capacity = min((jumps + 1) * math.comb(n + deepest, n), jumps + 1 + 4 * MOST_BREAKPOINTS) + 1
    past = jnp.sum(problem.jump_ts < problem.t0, dtype=jnp.int32)
    number = np.arange(jumps + 1, dtype=np.int32)
    roots = jnp.where(number < past, jnp.minimum(number, jumps), jumps).astype(jnp.int32)
    times = jnp.where(number <= past, root_times(problem)[roots] if jumps else problem.t0, jnp.inf)
    level = JUMP if problem.may_jump else KINK
    levels = jnp.where(number < past, JUMP, level).astype(jnp.int32)
    if problem.roughness is not None:
        levels = jnp.where(number < past, problem.roughness[jnp.minimum(number, jumps - 1)], levels)
    echoed = times[:, None] + problem.delays[None] <= problem.t0
    # (One kernel may fill and write to what is long, and compute with what is short.)
    padded = lambda x, filling: lax.dynamic_update_slice(jnp.full(capacity, filling, x.dtype), x, (np.int32(0),))
    return Sources(
        times=padded(times, jnp.inf),
        roots=padded(roots, jumps),
        counts=jnp.zeros((capacity, n), jnp.int32),
        levels=padded(levels, level),
        size=past + 1,
        start=past,
        pointers=jnp.sum(echoed, axis=0, dtype=jnp.int32) if jumps else jnp.zeros(n, jnp.int32),
        next_jump=problem.jumps_before(),
        jumps=jnp.zeros((), jnp.int32),
        reached=lax.stop_gradient(problem.t0),
        root_count=jumps + 1,
        rows=jnp.zeros(capacity, jnp.int32) if problem.kicks is not None or n >= WINDOW else None,
    )


def _candidates(sources: Sources, problem: Problem) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """The next echo that each delay brings, and the next declared jump."""
    roots, jumps = root_times(problem), problem.jump_ts.size
    parents = jnp.minimum(sources.pointers, sources.size - 1)
    counts = read_each(sources.counts, parents) + np.eye(len(parents), dtype=np.int32)
    root = read_each(roots, read_each(sources.roots, parents)) if jumps else problem.t0
    echoes = root + counts.astype(problem.delays.dtype) @ problem.delays
    declared = jnp.where(sources.next_jump < jumps, read(roots, sources.next_jump), jnp.inf)
    if jumps:
        # An echo a few floats beside a declared jump is one with it: between the two there is no room for a step that would
        # see the field on the right side.
        passed = jnp.where(sources.next_jump > 0, read(roots, jnp.maximum(sources.next_jump - 1, 0)), -jnp.inf)
        for mark in lax.stop_gradient((passed, declared)):
            near = jnp.abs(echoes - mark) <= _rounding(echoes, problem)
            echoes = jnp.where(near, echoes + lax.stop_gradient(mark - echoes), echoes)
    # Echoes of two sources at one time may differ by rounding, in either order: they are known as one, with nothing between,
    # and time does not run backwards.
    behind = lax.stop_gradient(sources.reached - echoes)
    behind = jnp.where(jnp.abs(behind) <= _rounding(echoes, problem), behind, jnp.maximum(behind, 0))
    echoes = echoes + behind
    return jnp.where(sources.pointers < sources.size, echoes, jnp.inf), declared


def _rounding(time: Float[Array, "*times"], problem: Problem) -> Float[Array, "*times"]:
    """How far apart the times of breakpoints may be that differ by rounding alone."""
    return 8 * jnp.finfo(time.dtype).eps * jnp.maximum(jnp.abs(time), jnp.max(problem.delays))


def roughest(times, levels, moving, interval, most: int) -> tuple[Float[Array, " most"], Int[Array, " most"]]:
    """Up to `most` of the breakpoints in an interval, the roughest first: (their `moving` times, -∞ in other places; their
    levels)."""
    # (The unused places of a solution that was itself continued are none.)
    within = (times >= interval[0]) & (times <= interval[1]) & (times > -jnp.inf)
    levels = jnp.where(within, levels, np.iinfo(np.int32).max)
    chosen = jnp.lexsort((-times, levels))[:most]
    kinks = jnp.where(within[chosen], moving[chosen], -jnp.inf)
    free = most - len(chosen)
    kinks = jnp.concatenate([kinks, jnp.full(free, -jnp.inf, kinks.dtype)])
    return kinks, jnp.concatenate([levels[chosen], jnp.zeros(free, jnp.int32)])


def segment_ahead(sources: Sources, problem: Problem) -> Segment:
    """The segment that follows the sources: up to the next breakpoint, or t1 if that comes first but for rounding."""
    echoes, declared = _candidates(sources, problem)
    # Not jnp.min, whose derivative averages over ties: equal delays have separate gradients.
    parents = jnp.minimum(sources.pointers, sources.size - 1)
    levels = _echo_levels(read_each(sources.levels, parents), problem) if problem.slopes else parents
    first = read(echoes, _first_of(echoes, levels, problem))
    first = jnp.where(declared <= first, declared, first)
    ulps = 8 * jnp.finfo(problem.t1.dtype).eps * jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
    end = jnp.where(first < problem.t1 - ulps, first, problem.t1)
    return Segment(end, sides_at(sources, sources.pointers, problem))


def sides_at(sources: Sources, pointers: Int[Array, " n"], problem: Problem) -> Sides:
    """The piece of the past that each delay reads while its pointer stands at `pointers`."""
    time_of = lambda places: lax.stop_gradient(read_each(sources.times, places))
    lower = jnp.where(pointers > 0, time_of(jnp.maximum(pointers - 1, 0)), -jnp.inf)
    first = None if problem.kicks is None else first_rows(sources, pointers)
    return Sides(lower, time_of(pointers), pointers <= sources.start, first)


def first_rows(sources: Sources, pointers: Int[Array, " n"]) -> Int[Array, " n"]:
    """The first row of the piece of the past that each delay reads; 0 if that is not kept."""
    return jnp.zeros_like(pointers) if sources.rows is None else read_each(sources.rows, jnp.maximum(pointers - 1, 0))


def source_times(sources: Sources, problem: Problem) -> Float[Array, " sources"]:
    """The times of the sources, moving with the roots and the delays of the problem; ∞ for those not hit."""
    times = root_times(problem)[sources.roots] + sources.counts.astype(problem.delays.dtype) @ problem.delays
    return jnp.where(jnp.isfinite(sources.times), times, jnp.inf)


def next_is_declared(sources: Sources, problem: Problem) -> Bool[Array, ""]:
    """Whether the next breakpoint is a declared jump."""
    echoes, declared = _candidates(sources, problem)
    return declared <= jnp.min(echoes)


def declared_level(jump: Int[Array, ""], problem: Problem) -> Any:
    """How rough the solution is at a declared jump, or what a delay looks back at: y jumps where it is kicked."""
    if problem.kicks is None:
        return JUMP if problem.impulsive else KINK
    return jnp.where(problem.kicks.are(jump), JUMP, KINK)


def pass_breakpoint(
    sources: Sources, problem: Problem, deepest: int, passing: Any = True, row: Any = 0
) -> tuple[Sources, Int[Array, ""]]:
    """Moves past the next breakpoint, if `passing`, recording it as a source if its kink is not too smooth to have tracked
    echoes. `row` is the number of the next step, which counts with impulses only.

    Also returns what its time depends on: `j n + i` for the echo of source j by delay i, `DECLARED - k` for declared jump k.

    Breakpoints that coincide up to rounding are passed together, but never the echoes of a jump of y: there each delay has
    a gradient of its own (the step between two of them has length zero and carries it).
    """
    echoes, jump_time = _candidates(sources, problem)
    parents = jnp.minimum(sources.pointers, sources.size - 1)
    parent_levels = read_each(sources.levels, parents)
    echo_levels = _echo_levels(parent_levels, problem)
    first = _first_of(echoes, echo_levels, problem)
    is_first = np.arange(len(parents), dtype=np.int32) == first
    echo_time, parent = read(echoes, first), read(parents, first)
    declared = jump_time <= echo_time
    time = jnp.where(declared, jump_time, echo_time)
    alone = read(parent_levels, first) == JUMP
    together = (echoes <= time + _rounding(time, problem)) & (parent_levels > JUMP) & ~alone
    hit = passing & ~declared & (is_first | together)

    level = jnp.where(declared, declared_level(sources.next_jump, problem), jnp.min(jnp.where(hit, echo_levels, deepest)))
    # A place is kept for every jump still to come.
    kept_free = jnp.where(declared, 0, problem.jump_ts.size - sources.next_jump)
    recorded = passing & (level < deepest) & (sources.size < len(sources.times) - 1 - kept_free)
    new = Source(
        time=time,
        root=jnp.where(declared, sources.next_jump, read(sources.roots, parent)),
        counts=jnp.where(declared, 0, read(sources.counts, parent) + is_first.astype(jnp.int32)),
        level=level,
        row=jnp.asarray(row),
    )
    # (With impulses a step of length zero may have been read, which has no slope: then the field's derivative is not known.)
    jumps = declared if problem.kicks is None else jnp.array(True)
    jumps = jumps | alone | (~declared & (level == KINK)) if problem.slopes else jumps | alone
    # Else, where two delays look at one kink at one time, the number of sources would grow with every delay.
    merged = ~declared & ~alone & (read(sources.times, sources.size - 1) == time)
    passed = dataclasses.replace(
        sources.with_source(new, recorded, merged, problem.slopes),
        pointers=sources.pointers + hit.astype(jnp.int32),
        next_jump=sources.next_jump + (passing & declared).astype(jnp.int32),
        jumps=sources.jumps + (passing & jumps).astype(jnp.int32),
        reached=jnp.where(passing, lax.stop_gradient(time), sources.reached),
    )
    echo = parent * len(parents) + first
    return passed, jnp.where(declared, DECLARED - sources.next_jump, echo)


def _first_of(echoes: Float[Array, " n"], levels: Int[Array, " n"], problem: Problem) -> Int[Array, ""]:
    """The delay that brings the next echo; where derivatives are looked at, the roughest of those at one time: how a point
    moves at which the field does not jump makes no difference."""
    if not problem.slopes:
        return lax.argmin(echoes, 0, jnp.int32)
    earliest = jnp.min(echoes)
    at_once = echoes <= earliest + _rounding(earliest, problem)
    return lax.argmin(jnp.where(at_once, levels, np.iinfo(np.int32).max), 0, jnp.int32)


def _echo_levels(levels: Int[Array, " n"], problem: Problem) -> Int[Array, " n"]:
    """One derivative smoother; but where a derivative is looked at, a kink stays as rough as it was."""
    if not problem.slopes:
        return levels + 1
    return jnp.where(np.array(problem.slopes), jnp.maximum(levels, KINK), levels + 1)
