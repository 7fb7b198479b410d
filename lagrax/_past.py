"""The past: one row per accepted step, read by row number.

A row is `[t, t_end, y, θ-coefficients…]`: the interval of the step and the polynomial that interpolates the solution over
it (`_method`). Only this file knows that. Which row a lookup reads is decided once, in the forward loop, and remembered as
an integer; looking up is then reading that row and Horner's rule, differentiable in the rows and the times.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from ._method import Method, combine
from ._problem import Problem
from ._xla._buffer import read, read_each, read_some, write

INITIAL_FUNCTION = -1
"""The row number that stands for the initial function, the past before t0."""


class Past(eqx.Module):
    """The accepted steps. Memory beyond `count` holds zeros, and start times of ∞.

    There is one row more than steps: a lane of a batch that has used them all writes there while it waits for others.
    """

    rows: Inexact[Array, "rows row"]
    starts: Float[Array, " starts"]
    """The start times of the rows once more, side by side for the search."""
    count: Int[Array, ""]
    last: Int[Array, ""]
    """The last row that is not of length zero, as between breakpoints that coincide: those have no slope to be read."""

    def append(self, row: Inexact[Array, " row"], t, t_end, keep: Bool[Array, ""]) -> "Past":
        """Writes the row of a step from t to t_end; if it is not to be kept, the next one will overwrite it."""
        return Past(
            rows=write(self.rows, self.count, row),
            starts=write(self.starts, self.count, lax.stop_gradient(t)),
            count=self.count + keep.astype(jnp.int32),
            last=jnp.where(keep & (t_end > t), self.count, self.last),
        )

    def read(self, numbers: Int[Array, "*shape"]) -> Inexact[Array, "*shape row"]:
        """The rows that lookups read (any row stands in for the initial function)."""
        found = read_each(self.rows, jnp.maximum(numbers, 0).reshape(-1))
        return found.reshape(*numbers.shape, self.rows.shape[1])

    def ahead(self, number: Int[Array, ""], size: int) -> Float[Array, " size"]:
        """The start times of so many rows from a number on; ∞ for those not written."""
        return read_some(self.starts, number, size)

    def holding(self, t: Float[Array, "*batch"], left: bool) -> Int[Array, "*batch"]:
        """The row that holds each time. Where two meet, the one that ends there if `left`, else the next."""
        # Few comparisons are cheaper all at once, many by bisection.
        method = "compare_all" if t.size * self.starts.size <= 2**16 else "scan"
        index = jnp.searchsorted(self.starts, t, side="left" if left else "right", method=method).astype(jnp.int32) - 1
        return jnp.clip(index, 0, jnp.maximum(self.count - 1, 0))

    def state(self, t: Float[Array, "*batch"], left: bool, like: Inexact[Array, " d"]) -> Inexact[Array, "*batch d"]:
        """The solution at times from t0 on, in the shape and dtype of one state `like` it."""
        return state_at(self.rows[self.holding(t, left)], t, like)


def empty_past(size: int, method: Method, problem: Problem, spare: int = 0) -> Past:
    """Room for `size` steps and one that is not kept, and `spare` start times beyond them.

    Zeros, so that no derivative of a branch not taken is NaN; the start of a row not written is ∞: it is never entered.
    """
    width = 2 + (len(method.dense) + 1) * problem.y0.size
    # Without the last one, a write beyond the end would be moved back by XLA, over the last step.
    zero = jnp.zeros((), jnp.int32)
    return Past(
        rows=jnp.zeros((size + 1, width), jnp.promote_types(problem.t0.dtype, problem.y0.dtype)),
        starts=jnp.full(size + spare, jnp.inf, problem.t0.dtype),
        count=zero,
        last=zero,
    )


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


def row_start(rows: Inexact[Array, "*batch row"]) -> Float[Array, "*batch"]:
    return rows[..., 0].real


def row_end(rows: Inexact[Array, "*batch row"]) -> Float[Array, "*batch"]:
    return rows[..., 1].real


def row_state(rows: Inexact[Array, "*batch row"], like: Inexact[Array, " d"]) -> Inexact[Array, "*batch d"]:
    """The states at the starts of rows."""
    return rows[..., 2 : 2 + like.size].astype(like.dtype)


def split_rows(rows: Inexact[Array, "*batch row"]) -> tuple[Float[Array, "*batch 2"], Inexact[Array, "*batch coefficients"]]:
    """The intervals of rows, and their polynomials."""
    return rows[..., :2].real, rows[..., 2:]


def join_rows(intervals: Float[Array, "*batch 2"], coefficients: Inexact[Array, "*batch coefficients"], dtype):
    """The rows of which these are the parts."""
    return jnp.concatenate([intervals.astype(dtype), coefficients], axis=-1)


def write_interval(rows: Inexact[Array, "rows row"], number: Int[Array, ""], interval: Float[Array, " 2"]):
    """The rows with another interval in one of them."""
    return lax.dynamic_update_slice(rows, interval.astype(rows.dtype)[None], (number, jnp.zeros_like(number)))


def state_at(row: Inexact[Array, "*batch row"], t: Float[Array, "*batch"], like: Inexact[Array, " d"]) -> Any:
    """The state at time t by the polynomial of a row, of the size and precision of `like`."""
    return evaluate(*split_rows(row), t, like.dtype, like.size)


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


def evaluate_slope(intervals: Float[Array, "*batch 2"], coefficients, t: Float[Array, "*batch"], y_dtype, d: int):
    """The derivative of the solution at times t, each from its own row."""
    start, length = intervals[..., 0], intervals[..., 1] - intervals[..., 0]
    length = jnp.where(length > 0, length, 1)
    theta = ((t - start) / length).astype(coefficients.dtype)[..., None]
    powers = [coefficients[..., k : k + d] for k in range(0, coefficients.shape[-1], d)]
    value = (len(powers) - 1) * powers[-1]
    for k in range(len(powers) - 2, 0, -1):
        value = value * theta + k * powers[k]
    return (value / length.astype(value.dtype)[..., None]).astype(y_dtype)


def add_rows(rows, numbers: Int[Array, " k"], values: Inexact[Array, "k row"]):
    """Adds each of `values` to its row. (A scatter would do the same, but keeps XLA from compiling a small loop as one
    kernel.)"""

    def add(j, rows):
        number = read(numbers, j)
        return write(rows, number, read(rows, number) + read(values, j))

    return lax.fori_loop(jnp.int32(0), jnp.int32(len(numbers)), add, rows)
