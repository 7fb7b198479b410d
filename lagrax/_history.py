"""The past: one row per accepted step, read by row number.

A row is `[t, t_end, y, θ-coefficients…]`: the interval of the step and the polynomial that interpolates the solution over
it (`_method.py`). Which row a lookup reads is decided once, in the forward loop, and remembered as an integer (`links`);
looking up is then reading that row and Horner's rule, differentiable in the rows, the times and the delays.
"""

import functools as ft

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from ._buffer import read_each
from ._compat import unvmap_any
from ._method import Method
from ._neighbours import previous
from ._problem import Problem

INITIAL_FUNCTION = -1
"""The row number that stands for the initial function, the past before t0."""

WINDOW = 8
"""How many rows ahead of its pointer a lookup searches; a step that would need more is shortened."""


def empty_rows(size: int, method: Method, problem: Problem) -> Inexact[Array, "rows row"]:
    """Room for `size` steps. Zeros, so that no derivative of a branch not taken is NaN."""
    width = 2 + (len(method.dense) + 1) * problem.y0.size
    return jnp.zeros((size, width), jnp.promote_types(problem.t0.dtype, problem.y0.dtype))


def empty_starts(size: int, problem: Problem) -> Float[Array, " rows_and_window"]:
    """The start times of the rows once more, side by side for the search. Unwritten ones are ∞: never entered."""
    return jnp.full(size + WINDOW, jnp.inf, problem.t0.dtype)


def make_row(
    method: Method,
    t: Float[Array, ""],
    t_end: Float[Array, ""],
    y: Inexact[Array, " d"],
    increments: list[Inexact[Array, " d"]],
    dtype,
) -> Inexact[Array, " row"]:
    """The row of a step of `method` from (t, y) whose stages were `increments = h f_j`."""
    coefficients = [combine(weights, increments) for weights in method.dense]
    parts = [t[None], t_end[None], y, *coefficients]
    return jnp.concatenate([part.astype(dtype) for part in parts])


def combine(weights, stages):
    """`Σ_j weights[j] stages[j]` without the zero terms, which XLA fuses where a dot product would be a call.

    (In `lax`: half of the time to trace a solve would go into the operators of `jax.numpy` otherwise.)
    """
    number = lambda w, stage: np.asarray(w, stage.dtype)
    terms = [lax.mul(stage, number(w, stage)) for w, stage in zip(weights, stages, strict=False) if w != 0]
    return ft.reduce(lax.add, terms) if terms else jnp.zeros_like(stages[0])


def read_rows(rows: Inexact[Array, "rows row"], links: Int[Array, "nodes n"]) -> Inexact[Array, "nodes n row"]:
    """The rows that lookups read (any row stands in for the initial function)."""
    return read_each(rows, jnp.maximum(links, 0).reshape(-1)).reshape(*links.shape, rows.shape[1])


def row_start(rows: Inexact[Array, "*batch row"]) -> Float[Array, "*batch"]:
    return rows[..., 0].real


def row_end(rows: Inexact[Array, "*batch row"]) -> Float[Array, "*batch"]:
    return rows[..., 1].real


def split_rows(rows: Inexact[Array, "*batch row"]) -> tuple[Float[Array, "*batch 2"], Inexact[Array, "*batch coefficients"]]:
    """The intervals of rows, and their polynomials."""
    return rows[..., :2].real, rows[..., 2:]


def evaluate(intervals: Float[Array, "*batch 2"], coefficients, t: Float[Array, "*batch"], y_dtype, d: int):
    """The solution at times t, each from its own row. A time outside its row extrapolates the row's polynomial."""
    start, length = intervals[..., 0], intervals[..., 1] - intervals[..., 0]
    # A row has length zero where two breakpoints coincide, and before it is written.
    theta = (t - start) / jnp.where(length > 0, length, 1)
    theta = theta.astype(coefficients.dtype)[..., None]
    powers = [coefficients[..., k : k + d] for k in range(0, coefficients.shape[-1], d)]
    value = powers[-1]
    for coefficient in powers[-2::-1]:
        value = value * theta + coefficient
    return value.astype(y_dtype)


def step_index(starts: Float[Array, " starts"], count: Int[Array, ""], t: Float[Array, "*batch"], left: bool):
    """The row that holds each time: where two meet, the one that ends there if `left`, else the one that starts there."""
    # Few comparisons are cheaper all at once, many by bisection.
    method = "compare_all" if t.size * starts.size <= 2**16 else "scan"
    index = jnp.searchsorted(starts, t, side="left" if left else "right", method=method).astype(jnp.int32) - 1
    return jnp.clip(index, 0, jnp.maximum(count - 1, 0))


class Sides(eqx.Module):
    """Between which breakpoints each delay looks now, which settles the side a lookup exactly on a kink belongs to.

    A step reads delay i's past inside [lower_i, upper_i], consecutive breakpoints of the past, and never beyond: at the
    ends it takes the limit from inside, however the times round. `initial` marks the delays still reading the initial
    function.
    """

    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    initial: Bool[Array, " n"]


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
    queries = jnp.maximum(queries, sides.lower[None])
    inside = (starts[None] <= queries[..., None]) & (starts < sides.upper[:, None])[None]
    found = pointers[None] + jnp.sum(inside, axis=-1, dtype=jnp.int32) - 1
    return jnp.where(sides.initial[None], INITIAL_FUNCTION, jnp.clip(found, 0, last))


def query_times(method: Method, t, t_end, delays: Float[Array, " n"]) -> Float[Array, "nodes n"]:
    """Which times the nodes of the step [t, t_end] look back to."""
    return node_times(method, t, t_end)[:, None] - delays[None]


def node_times(method: Method, t, t_end) -> Float[Array, " nodes"]:
    """The times of the nodes of the step [t, t_end]."""
    c = jnp.asarray(method.nodes, t.dtype)
    return jnp.where(method.nodes == 1, t_end, t + c * (t_end - t))


def delayed_states(
    problem: Problem,
    method: Method,
    queries: Float[Array, "nodes n"],
    links: Int[Array, "nodes n"],
    intervals: Float[Array, "nodes n 2"],
    coefficients: Inexact[Array, "nodes n coefficients"],
    sides: Sides,
) -> Inexact[Array, "nodes n d"]:
    """The delayed states at every node: from the gathered rows, or from the initial function where `links` says so."""
    past = evaluate(intervals, coefficients, queries, problem.y0.dtype, problem.y0.size)
    if callable(problem.history):
        before = lax.cond(
            unvmap_any(sides.initial),
            lambda: _from_history(problem, method, queries, sides),
            lambda: jnp.zeros_like(past),
        )
    else:
        before = jnp.broadcast_to(problem.history, past.shape)
    return jnp.where((links == INITIAL_FUNCTION)[..., None], before, past)


def _from_history(
    problem: Problem, method: Method, queries: Float[Array, "nodes n"], sides: Sides
) -> Inexact[Array, "nodes n d"]:
    """The initial function at the queries, never asked beyond the piece of it that the step sees.

    Neither rounding nor `u > jump` instead of `u >= jump` in the function may carry a lookup across a jump of it (often one
    at t0). A node past the end of the step (c > 1) that looks past the piece sees what the others see, extrapolated.
    """
    edge = jnp.minimum(sides.upper, problem.t0)[None]
    inside = jnp.clip(queries, -previous(-sides.lower)[None], previous(edge))
    times = queries + lax.stop_gradient(inside - queries)
    states = problem.initial_function(times.reshape(-1)).reshape(*times.shape, problem.y0.size)
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
