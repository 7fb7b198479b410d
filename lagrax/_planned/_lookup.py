"""What the stages of a planned step see of the past: looked up for all of them before the step is taken."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from .._method import Method, node_times
from .._past import INITIAL_FUNCTION, evaluate, evaluate_slope
from .._problem import Problem
from .._xla._compat import unvmap_any
from .._xla._neighbours import early

WINDOW = 8
"""How many rows ahead of its pointer a lookup searches; a step that would need more is shortened."""


class Sides(eqx.Module):
    """Between which breakpoints each delay looks now, which settles the side a lookup exactly on a kink belongs to.

    A step reads delay i's past inside [lower_i, upper_i], consecutive breakpoints of the past, and never beyond: at the
    ends it takes the limit from inside, however the times round. `initial` marks the delays still reading the initial
    function.
    """

    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    initial: Bool[Array, " n"]
    first: Int[Array, " n"] | None = None
    """With impulses, the first row between the two, which may be one of length zero: it has the state between two kicks."""


def find_rows(
    starts: Float[Array, "n window"],
    pointers: Int[Array, " n"],
    queries: Float[Array, "nodes n"],
    sides: Sides,
    last: Int[Array, ""],
) -> Int[Array, "nodes n"]:
    """The row that holds each query: the last that starts no later, kept between the delay's two breakpoints.

    `starts` are the start times of the rows from `pointers` on; `last` is the last row written that is not of length zero.
    """
    # A step that ends where the window does sees the row before: the last one of the window may be of length zero, as where
    # breakpoints coincide, and has no slope then. (One that starts there has length zero itself, and goes on.)
    edge = starts[:, -1]
    upper = jnp.where(queries[0] < edge, jnp.minimum(sides.upper, edge), sides.upper)
    queries = jnp.maximum(queries, sides.lower[None])
    inside = (starts[None] <= queries[..., None]) & (starts < upper[:, None])[None]
    found = pointers[None] + jnp.sum(inside, axis=-1, dtype=jnp.int32) - 1
    found = jnp.clip(jnp.maximum(found, pointers[None]), 0, last)
    return jnp.where(sides.initial[None], INITIAL_FUNCTION, _in_piece(found, sides))


def search_window(
    ahead: Callable, pointers: Int[Array, " n"], span: tuple, problem: Problem, sides: Sides, rounding
) -> tuple[Int[Array, " n"], Float[Array, "n window"]]:
    """(The pointers, the start times of the next `WINDOW` rows, `ahead(pointers)`) for a step in the `span` (t, end).

    Where breakpoints coincide there is a row of length zero, or of the few floats that their times differ by, for each of
    them. If a window is full of them no step has room behind it: then the pointers move on to the rows that t looks at.
    """
    (t, end), delays, window = span, problem.delays, ahead(pointers)
    if len(delays) < WINDOW // 2 and not problem.jump_ts.size:
        # As many breakpoints coincide as there are delays: nothing to look for in the loop (which would take 6 % of it).
        return pointers, window
    full = (jnp.min(jnp.minimum(t, window[:, -1]) + delays) <= t + rounding) & (t + rounding < end)

    def step(state):
        pointers, window, _ = state
        passed = (window + delays[:, None] <= t + rounding) & (window < sides.upper[:, None])
        further = jnp.where(full, jnp.maximum(jnp.sum(passed, axis=1, dtype=jnp.int32) - 1, 0), 0)
        pointers = pointers + further
        return pointers, ahead(pointers), unvmap_any(jnp.any(further == WINDOW - 1))

    pointers, window, _ = lax.while_loop(lambda state: state[2], step, (pointers, window, unvmap_any(full)))
    return pointers, window


def _in_piece(found: Int[Array, "nodes n"], sides: Sides) -> Int[Array, "nodes n"]:
    """The rows found; with impulses, in a piece of length zero the row that is all of it."""
    return found if sides.first is None else jnp.where((sides.lower == sides.upper)[None], sides.first[None], found)


def query_times(method: Method, t, t_end, delays: Float[Array, " n"]) -> Float[Array, "nodes n"]:
    """Which times the nodes of the step [t, t_end] look back to."""
    return node_times(method, t, t_end)[:, None] - delays[None]


def delayed_states(
    problem: Problem,
    method: Method,
    queries: Float[Array, "nodes n"],
    links: Int[Array, "nodes n"],
    intervals: Float[Array, "nodes n 2"],
    coefficients: Inexact[Array, "nodes n coefficients"],
    sides: Sides,
) -> Inexact[Array, "nodes n d"]:
    """The delayed states (or derivatives) at every node: from the gathered rows, or from the initial function where `links`
    says so."""
    past = _from_rows(problem, intervals, coefficients, queries)
    if callable(problem.history):
        before = lax.cond(
            unvmap_any(sides.initial),
            lambda: _from_history(problem, method, queries, sides),
            lambda: jnp.zeros_like(past),
        )
    else:
        before = _chosen(problem, jnp.broadcast_to(problem.history, past.shape), jnp.zeros_like(past))
    return jnp.where((links == INITIAL_FUNCTION)[..., None], before, past)


def _from_rows(problem: Problem, intervals, coefficients, queries) -> Inexact[Array, "nodes n d"]:
    like = (problem.y0.dtype, problem.y0.size)
    if not problem.slopes:
        return evaluate(intervals, coefficients, queries, *like)
    kinds = [evaluate_slope if slope else evaluate for slope in problem.slopes]
    columns = [of(intervals[:, i], coefficients[:, i], queries[:, i], *like) for i, of in enumerate(kinds)]
    return jnp.stack(columns, axis=1)


def _chosen(problem: Problem, states: Inexact[Array, "nodes n d"], slopes) -> Inexact[Array, "nodes n d"]:
    """Of both, what each delay looks at."""
    return jnp.where(np.array(problem.slopes)[:, None], slopes, states) if problem.slopes else states


def _from_history(
    problem: Problem, method: Method, queries: Float[Array, "nodes n"], sides: Sides
) -> Inexact[Array, "nodes n d"]:
    """The initial function at the queries, never asked beyond the piece of it that the step sees.

    Neither rounding nor `u > jump` instead of `u >= jump` in the function may carry a lookup across a jump of it (often one
    at t0). A node past the end of the step (c > 1) that looks past the piece sees what the others see, extrapolated.
    """
    edge = jnp.minimum(sides.upper, problem.t0)[None]
    inside = jnp.clip(queries, -early(-sides.lower)[None], early(edge))
    times = queries + lax.stop_gradient(inside - queries)
    function = lambda times: problem.initial_function(times.reshape(-1)).reshape(*times.shape, problem.y0.size)
    both = lambda: jax.jvp(function, (times,), (jnp.ones_like(times),))
    states = _chosen(problem, *both()) if problem.slopes else function(times)
    if method.reach == 1:
        return states
    beyond = jnp.asarray(method.nodes > 1)[:, None, None] & (queries > inside)[..., None]
    return jnp.where(beyond, jnp.einsum("ij,j...->i...", _extrapolation(method).astype(states.dtype), states), states)


def _extrapolation(method: Method) -> np.ndarray:
    """Each node's value of the polynomial through the values at the nodes inside the step."""
    inner = method.nodes[method.nodes <= 1]
    weights = np.zeros((len(method.nodes), len(method.nodes)))
    powers = np.arange(len(inner))
    weights[:, : len(inner)] = method.nodes[:, None] ** powers @ np.linalg.inv(inner[:, None] ** powers)
    return weights
