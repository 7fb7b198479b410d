"""The past of a network: rows as elsewhere (`_past.py`), but laid out so that one component is read without the others.

Row r holds, for each component side by side, the coefficients of its polynomial in θ: a lookup reads one slice of five
numbers (for Tsit5). The first rows are the initial function, so that before and after t0 are read in the same way.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, Int

from .._method import Method, combine
from .._past import Past
from .._problem import Problem
from .._xla._buffer import write

TABLE = 1024
"""Into how many pieces an initial function is divided, each a polynomial of the method's degree. (To call it for every
element of every stage instead would be 60,000 calls a step for a network of 10,000.)"""


class Memory(eqx.Module):
    """Rows 0 to `first` - 1 are the initial function, row `first` + i is step i. Unwritten rows start at ∞."""

    rows: Inexact[Array, "rows d powers"]
    starts: Float[Array, " starts"]
    clock: Float[Array, "rows 2"]
    """(Start, 1 / length) of each row."""
    ends: Float[Array, " rows"]
    first: int = eqx.field(static=True)

    def written(self, number: Int[Array, ""], row: Inexact[Array, "d powers"], t, t_end) -> "Memory":
        """With the row of a step from t to t_end."""
        number = number + self.first
        clocked = self.clocked(number, t, t_end)
        return eqx.tree_at(lambda m: m.rows, clocked, write(self.rows, number, row))

    def clocked(self, number: Int[Array, ""], t, t_end) -> "Memory":
        """With the interval of a row, whose number counts from the first of all."""
        parts = (
            write(self.starts, number, lax.stop_gradient(t)),
            write(self.clock, number, clock(t, t_end)),
            write(self.ends, number, t_end),
        )
        return eqx.tree_at(lambda m: (m.starts, m.clock, m.ends), self, parts)

    def coefficients(self, links: Int[Array, "*shape"], senders: Int[Array, " e"]) -> Inexact[Array, "*shape powers"]:
        """What each lookup reads: out of the row that `links` says, the component that `senders` says."""
        _, d, powers = self.rows.shape
        flat = self.rows.reshape(-1, powers)
        return flat.at[links * d + senders].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def intervals(self, links: Int[Array, "*shape"]) -> Float[Array, "*shape 2"]:
        return self.clock.at[links].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def as_past(self, count: Int[Array, ""], steps: int) -> Past:
        """The accepted steps as others read them."""
        rows, taken = self.rows[self.first : self.first + steps], np.arange(steps, dtype=np.int32) < count
        starts, ends = self.clock[self.first : self.first + steps, 0], self.ends[self.first : self.first + steps]
        coefficients = jnp.swapaxes(rows, 1, 2).reshape(steps, -1)
        dtype = jnp.promote_types(starts.dtype, rows.dtype)
        joined = jnp.concatenate([starts[:, None].astype(dtype), ends[:, None].astype(dtype), coefficients.astype(dtype)], 1)
        return Past(
            rows=jnp.where(taken[:, None], joined, 0),
            starts=jnp.where(taken, self.starts[self.first : self.first + steps], jnp.inf),
            count=count,
            last=jnp.maximum(count - 1, 0),
        )


def clock(t: Float[Array, ""], t_end: Float[Array, ""]) -> Float[Array, " 2"]:
    """(Start, 1 / length) of a step. A step that is not one has no length."""
    length = t_end - t
    return jnp.stack([t, jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1), 0)])


def make_row(method: Method, y: Inexact[Array, " d"], increments: list[Inexact[Array, " d"]]) -> Inexact[Array, "d powers"]:
    """The row of a step of `method` from y whose stages were `increments = h f_j`."""
    return jnp.stack([y, *(combine(weights, increments) for weights in method.dense)], axis=-1)


def polynomial(coefficients: Inexact[Array, "*shape powers"], theta: Float[Array, "*shape"]) -> Inexact[Array, "*shape"]:
    """Horner's rule."""
    theta = theta.astype(coefficients.dtype)
    value = coefficients[..., -1]
    for k in range(coefficients.shape[-1] - 2, -1, -1):
        value = value * theta + coefficients[..., k]
    return value


def first_rows(problem: Problem) -> int:
    """How many rows the initial function takes."""
    return TABLE + problem.jump_ts.size if callable(problem.history) else 1


def empty_memory(problem: Problem, method: Method, steps: int) -> Memory:
    """The initial function, and room for `steps` steps and one more that is being taken."""
    first, powers = first_rows(problem), len(method.dense) + 1
    size, dtype = first + steps + 1, problem.t0.dtype
    past, edges = initial_rows(problem, method), lax.stop_gradient(_edges(problem))
    rows = lax.dynamic_update_slice(jnp.zeros((size, problem.y0.size, powers), problem.y0.dtype), past, (np.int32(0),) * 3)
    length = jnp.diff(edges)
    inverse = jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1), 0)
    put = lambda buffer, values: lax.dynamic_update_slice(buffer, values, (np.int32(0),) * buffer.ndim)
    return Memory(
        rows=rows,
        # (Nothing is before the first row.)
        starts=put(jnp.full(size + 1, jnp.inf, dtype), edges[:-1].at[0].set(-jnp.inf)),
        clock=put(jnp.zeros((size, 2), dtype), jnp.stack([edges[:-1], inverse], axis=1)),
        ends=put(jnp.zeros(size, dtype), edges[1:]),
        first=first,
    )


def _edges(problem: Problem) -> Float[Array, " edges"]:
    """The ends of the pieces of the initial function: evenly spaced, and at its declared jumps."""
    t0 = problem.t0
    if not callable(problem.history):
        return jnp.stack([t0, t0])
    longest = jnp.max(problem.network.delays(problem.lags, problem.y0.size, t0.dtype))
    # (A little more, so that no lookup rounds to before it.)
    even = t0 - longest * jnp.linspace(1 + 1e-3, 0, TABLE + 1, dtype=t0.dtype)
    inside = jnp.clip(problem.jump_ts, even[0], t0)
    return jnp.sort(jnp.concatenate([even, jnp.where(jnp.isnan(inside), t0, inside)]))


def initial_rows(problem: Problem, method: Method) -> Inexact[Array, "first d powers"]:
    """The initial function as rows. Differentiable in the function and all that it closes over."""
    powers = len(method.dense) + 1
    if not callable(problem.history):
        zeros = [jnp.zeros_like(problem.y0)] * (powers - 1)
        return jnp.stack([problem.history, *zeros], axis=-1)[None]
    edges, points = lax.stop_gradient(_edges(problem)), _points(powers)
    values = _values(problem, edges, points)
    weights = np.linalg.inv(points[:, None] ** np.arange(powers))
    return jnp.einsum("kp,rpd->rdk", jnp.asarray(weights, values.dtype), values, precision="highest")


def misfit(problem: Problem, method: Method) -> tuple[Inexact[Array, "pieces points d"], Inexact[Array, "pieces points d"]]:
    """(The error of the rows of an initial function, the function itself) between the points that they go through."""
    edges, between = lax.stop_gradient(_edges(problem)), np.array([0.02, 0.37, 0.63, 0.98])
    rows, values = initial_rows(problem, method), _values(problem, edges, between)
    powers = jnp.asarray(between[:, None] ** np.arange(rows.shape[-1]), rows.dtype)
    found = jnp.einsum("rdk,pk->rpd", rows, powers, precision="highest")
    return jnp.where((jnp.diff(edges) > 0)[:, None, None], found - values, 0), values


def _values(problem: Problem, edges: Float[Array, " edges"], points: np.ndarray) -> Inexact[Array, "pieces points d"]:
    times = edges[:-1, None] + jnp.diff(edges)[:, None] * jnp.asarray(points, edges.dtype)
    # Never asked at t0 or after it, which rounding might do.
    times = jnp.minimum(times, lax.stop_gradient(problem.t0 - jnp.finfo(edges.dtype).eps * jnp.abs(problem.t0)))
    return problem.initial_function(times.reshape(-1)).reshape(*times.shape, problem.y0.size)


def _points(count: int) -> np.ndarray:
    """Chebyshev's points of [0, 1], none of them an end, where the initial function may jump."""
    return (1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2
