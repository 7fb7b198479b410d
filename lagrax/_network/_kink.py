"""The kink at t0, as elements see it one after the other in the middle of steps.

The slope of y jumps at t0. An element that looks past it within a step sees L(s) before and L(s) + δ₁ x + δ₂ x² + … after,
x = s - t0. Sampled at a few nodes, the corner x₊ is integrated with an error of O(h²), and as a function of the delay, which
moves it between the nodes, with one of O(h): the derivative would be wrong by that much. So the step is shown, instead of
x₊ᵏ, the cubic in time that has the same ends, the same integral and the same first moment over the step: a method of order
four or more integrates it exactly, and the result is right to O(h⁴) and smooth in the delay. (A tracked breakpoint would do
the same for one delay; here there are thousands.)
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact

from .._method import Method
from .._problem import Problem
from .._xla._compat import unvmap_any
from ._memory import Memory

POWERS = (1, 2)
"""Which terms of the difference are replaced."""


def applies(method: Method) -> bool:
    """Whether the method integrates cubics exactly, and knows the slope of its output."""
    return method.order >= 4 and len(method.dense) >= max(POWERS)


def crosses(problem: Problem, t, t_end, count) -> Bool[Array, ""]:
    """Whether any element may see t0 inside a step. (The first step sees none of what comes after t0.)"""
    delays = problem.network.delays(problem.lags, problem.y0.size, t.dtype)
    return (count > 0) & (t < problem.t0 + jnp.max(delays)) & (t_end > problem.t0 + jnp.min(delays))


def corners(memory: Memory) -> tuple[Inexact[Array, "2 d powers"], Float[Array, "2 2"]]:
    """The rows before and after t0, and their intervals: what a correction depends on."""
    before = memory.first - 1
    return memory.rows[before : before + 2], memory.clock[before : before + 2]


def with_corners(
    seen: Inexact[Array, "nodes e"], memory: Memory, t, t_end, count, skip: int, problem: Problem, method: Method
):
    """What is seen at the nodes of a step but for the first `skip` of them, corners replaced."""
    if not applies(method):
        return seen
    delays = problem.network.delays(problem.lags, problem.y0.size, t.dtype)
    times = (problem.t0, t, t_end)
    corrected = lambda: seen + correction(delays, corners(memory), times, problem.network.senders, method)[skip:]
    return lax.cond(unvmap_any(crosses(problem, t, t_end, count)), corrected, lambda: seen)


def correction(delays: Float[Array, " e"], given, times, senders, method: Method) -> Inexact[Array, "nodes e"]:
    """What is to be added to what elements see, for those that see t0 inside the step from t to t_end.

    Differentiable in `delays`, in the corners `given` and in the `times` (t0, t, t_end).
    """
    (rows, clock), (t0, t, t_end) = given, times
    h = t_end - t
    corner = (t0 + delays - t) / h
    inside = (corner > 0) & (corner < 1)
    nodes = jnp.asarray(method.nodes, t.dtype)[:, None]
    total = jnp.zeros((len(method.nodes), delays.size), rows.dtype)
    for k, jump in zip(POWERS, _jumps(rows, clock), strict=True):
        replaced = _cubic(method.nodes, 1 - corner, k) - jnp.maximum(nodes - corner, 0) ** k
        size = jump.at[senders].get(mode="promise_in_bounds", wrap_negative_indices=False)
        total = total + size * (jnp.where(inside, replaced, 0) * h**k).astype(rows.dtype)
    return total


def pull_corners(bar: Inexact[Array, "nodes e"], memory: Memory, t, t_end, count, problem: Problem, method: Method):
    """The cotangents of the inputs of `correction`, (delays, corners, times), given that of its result."""
    delays = problem.network.delays(problem.lags, problem.y0.size, t.dtype)
    inputs = (delays, corners(memory), (problem.t0, t, t_end))
    function = lambda delays, given, times: correction(delays, given, times, problem.network.senders, method)
    pulled = lambda: jax.vjp(function, *inputs)[1](bar)
    nothing = lambda: jax.tree.map(jnp.zeros_like, inputs)
    return lax.cond(unvmap_any(crosses(problem, t, t_end, count)), pulled, nothing)


def _jumps(rows: Inexact[Array, "2 d powers"], clock: Float[Array, "2 2"]) -> list[Inexact[Array, " d"]]:
    """The coefficients δₖ of the difference between what follows t0 and the continuation of what precedes it."""
    before, after = jnp.unstack(rows)
    rates = clock[:, 1].astype(rows.dtype)
    jumps = []
    for k in POWERS:
        shifted = sum(math.comb(j, k) * before[:, j] for j in range(k, before.shape[1]))
        jumps.append(after[:, k] * rates[1] ** k - shifted * rates[0] ** k)
    return jumps


def _cubic(nodes: np.ndarray, rest: Float[Array, " e"], k: int) -> Float[Array, "nodes e"]:
    """The cubic, at the nodes, with the ends, the integral and the first moment of (θ - θ*)₊ᵏ; `rest` is 1 - θ*."""
    powers = np.arange(4)
    conditions = np.stack([0.0**powers, np.ones(4), 1 / (powers + 1), 1 / (powers + 2)])
    shares = nodes[:, None] ** powers @ np.linalg.inv(conditions)
    # End u^k, integral u^(k+1)/(k+1), moment u^(k+1)/(k+1) - u^(k+2)/((k+1)(k+2)), with u = 1 - θ*.
    values = shares[:, 1], (shares[:, 2] + shares[:, 3]) / (k + 1), -shares[:, 3] / ((k + 1) * (k + 2))
    first, second, third = (jnp.asarray(x, rest.dtype)[:, None] for x in values)
    return rest**k * (first + rest * (second + rest * third))
