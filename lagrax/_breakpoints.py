"""Where the solution kinks, found one after another as the solution advances.

The solution is not smooth at t0 nor at a declared jump; every delay carries such a kink forward, one derivative smoother
each time, so the kinks lie at `root + Σ_i m_i τ_i` with whole numbers m. They are generated like Hamming numbers: the list
of *sources* hit so far, one pointer per delay into it, and the next breakpoint is `min_i(source[pointer_i] + τ_i)`. The
counts m are kept: a breakpoint's time is computed from them, so that one reached along two paths is one time to the last
bit, and they are its derivative with respect to the delays.

The same pointers say which piece of the past each delay is reading: between sources `pointer - 1` and `pointer`.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ._history import Sides
from ._problem import Problem

MOST_BREAKPOINTS = 1024
"""With many delays the smoothest kinks are not tracked, so that one root has at most this many descendants."""

JUMP, KINK = -1, 0
"""Levels of the roots: y itself may jump, or its derivative may. A descendant at level k has its (k+1)-th derivative jump."""


class Sources(eqx.Module):
    """The breakpoints hit so far whose echoes are still to come, in order of time, and what comes next.

    `roots`, `counts` and `levels` describe source j: `times[j] = root_times[roots[j]] + counts[j] · delays`. The last
    three fields are what the loop asks for at every step; they change only when a breakpoint is hit.
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
    candidates: Float[Array, " n"]
    next_time: Float[Array, ""]
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


def root_times(problem: Problem) -> Float[Array, " roots"]:
    """The times all kinks descend from: the declared jumps, in order, and t0 as the last."""
    return jnp.concatenate([problem.jump_ts, problem.t0[None]])


def initial_sources(problem: Problem, order: int) -> Sources:
    """Before the first step: the jumps declared in the past, then t0."""
    n = problem.delays.size
    roots = root_times(problem)
    jumps = len(roots) - 1
    deepest = deepest_level(order, n)
    # Sources have levels JUMP … deepest - 1, so each root has at most C(n + deepest, n) of them.
    capacity = min((jumps + 1) * math.comb(n + deepest, n), 4 * MOST_BREAKPOINTS) + 1

    in_past = roots[:-1] < problem.t0
    size = jnp.sum(in_past, dtype=jnp.int32) + 1
    index = jnp.minimum(jnp.arange(capacity, dtype=jnp.int32), size - 1)
    which = jnp.where(index == size - 1, jumps, index)
    written = jnp.arange(capacity) < size
    times = jnp.where(written, roots[which], jnp.inf)
    start_level = JUMP if problem.may_jump else KINK
    levels = jnp.where(which == jumps, start_level, JUMP).astype(jnp.int32)
    pointers = jnp.sum(times[:, None] + problem.delays <= problem.t0, axis=0, dtype=jnp.int32)
    next_jump = jnp.sum(roots[:-1] <= problem.t0, dtype=jnp.int32)
    sources = Sources(
        times=times,
        roots=which.astype(jnp.int32),
        counts=jnp.zeros((capacity, n), jnp.int32),
        levels=levels,
        size=size,
        start=size - 1,
        pointers=pointers,
        next_jump=next_jump,
        jumps=jnp.zeros((), jnp.int32),
        candidates=jnp.zeros_like(problem.delays),
        next_time=problem.t0,
        sides=Sides(jnp.zeros_like(problem.delays), jnp.zeros_like(problem.delays), jnp.zeros(n, bool)),
    )
    return _look_ahead(sources, problem)


def _look_ahead(sources: Sources, problem: Problem) -> Sources:
    """Refreshes what depends on the pointers: the next breakpoint and the sides of the lookups."""
    pointers, roots = sources.pointers, root_times(problem)
    parents = jnp.minimum(pointers, sources.size - 1)
    counts = sources.counts[parents] + jnp.eye(len(pointers), dtype=jnp.int32)
    echoes = roots[sources.roots[parents]] + counts.astype(problem.delays.dtype) @ problem.delays
    candidates = jnp.where(pointers < sources.size, echoes, jnp.inf)
    # Not jnp.min, whose derivative averages over ties: equal delays have separate gradients.
    next_time = candidates[jnp.argmin(candidates)]
    jump_time = _jump_time(sources, roots)
    next_time = jnp.where(jump_time <= next_time, jump_time, next_time)
    sides = sides_at(sources.times, sources.start, pointers)
    return eqx.tree_at(lambda s: (s.candidates, s.next_time, s.sides), sources, (candidates, next_time, sides))


def sides_at(times: Float[Array, " sources"], start: Int[Array, ""], pointers: Int[Array, " n"]) -> Sides:
    """The piece of the past that each delay reads while its pointer stands at `pointers`."""
    lower = jnp.where(pointers > 0, times[jnp.maximum(pointers - 1, 0)], -jnp.inf)
    return Sides(lax.stop_gradient(lower), lax.stop_gradient(times[pointers]), pointers <= start)


def _jump_time(sources: Sources, roots: Float[Array, " roots"]) -> Float[Array, ""]:
    """When the next declared jump is."""
    jumps = len(roots) - 1
    return jnp.where(sources.next_jump < jumps, roots[jnp.minimum(sources.next_jump, jumps)], jnp.inf)


def pass_breakpoint(sources: Sources, problem: Problem, deepest: int) -> Sources:
    """Moves past `sources.next_time`, recording it as a source if its kink is not too smooth to have tracked echoes.

    Breakpoints that coincide up to rounding are passed together, but never the echoes of a jump of y: there each delay has
    a gradient of its own (the step between two of them has length zero and carries it).
    """
    roots = root_times(problem)
    jump_time = _jump_time(sources, roots)
    parents = jnp.minimum(sources.pointers, sources.size - 1)
    parent_levels = sources.levels[parents]
    first = jnp.argmin(sources.candidates)
    declared = jump_time <= sources.candidates[first]
    near = 8 * jnp.finfo(problem.delays.dtype).eps * jnp.maximum(jnp.abs(sources.next_time), jnp.max(problem.delays))
    together = (sources.candidates <= sources.next_time + near) & (parent_levels > JUMP)
    alone = parent_levels[first] == JUMP
    hit = jnp.where(declared, False, jnp.arange(len(parents)) == first) | (together & ~declared & ~alone)

    level = jnp.where(declared, KINK, jnp.min(jnp.where(hit, parent_levels + 1, deepest)))
    recorded = (level < deepest) & (sources.size < len(sources.times) - 1)
    parent = parents[first]
    root = jnp.where(declared, sources.next_jump, sources.roots[parent])
    counts = jnp.where(declared, 0, sources.counts[parent] + (jnp.arange(len(parents)) == first))

    def append(buffer, value):
        value = jnp.where(recorded, value.astype(buffer.dtype), buffer[sources.size])
        return lax.dynamic_update_index_in_dim(buffer, value, sources.size, axis=0)

    grown = eqx.tree_at(
        lambda s: (s.times, s.roots, s.counts, s.levels, s.size, s.pointers, s.next_jump, s.jumps),
        sources,
        (
            append(sources.times, sources.next_time),
            append(sources.roots, root),
            append(sources.counts, counts),
            append(sources.levels, level),
            sources.size + recorded,
            sources.pointers + hit,
            sources.next_jump + declared,
            sources.jumps + (declared | alone),
        ),
    )
    return _look_ahead(grown, problem)
