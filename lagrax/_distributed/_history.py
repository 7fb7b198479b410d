"""Integrals over the history: what is known of an integral at t0."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

PANELS, MORE_PANELS = 16, 64
"""Into how many equal parts a smooth stretch of the history is divided, finite or (where a kernel decays) infinite."""

POINTS, FEWER = np.polynomial.legendre.leggauss(8), np.polynomial.legendre.leggauss(5)
"""Gauss's points and weights on [-1, 1] for the integral, and for another one that tells its error."""


class Past(NamedTuple):
    """The history: a function of time, the times at which it may jump, and t0."""

    state: Callable
    breaks: Float[Array, " breaks"]
    t0: Float[Array, ""]


def over_history(
    weights: Callable,
    value: Callable,
    bounds: tuple[Float[Array, ""], Float[Array, ""]],
    breaks: Float[Array, " breaks"],
    panels: int,
) -> tuple[PyTree, PyTree, PyTree]:
    """(∫ weights(u) value(u) du between two times, its error, the share of the earliest part).

    `value(u)` is a tree of arrays, `weights(u)` a vector, which becomes the first axis of each leaf. The integrand may jump
    at the `breaks`, which are in order; they, the bounds, weights and values are differentiable.
    """
    lower, upper = bounds
    inner = jnp.clip(breaks, lower, upper)
    starts, ends = jnp.append(lower[None], inner), jnp.append(inner, upper[None])
    shares = jnp.arange(panels + 1) / panels
    edges = starts[:, None] + (ends - starts)[:, None] * shares.astype(starts.dtype)
    left, right = edges[:, :-1].reshape(-1), edges[:, 1:].reshape(-1)

    def gauss(a, b, rule):
        points, factors = (jnp.asarray(x, a.dtype) for x in rule)
        times = (a + b) / 2 + points * (b - a) / 2
        k = jax.vmap(weights)(times) * (factors * (b - a) / 2)[:, None]
        return jax.tree.map(lambda g: jnp.tensordot(k.T.astype(g.dtype), g, 1), jax.vmap(value)(times))

    # One part after the other, each computed again on the way back: the history of a large state is not kept.
    @jax.checkpoint
    def part(sums, ends):
        total, error = sums
        share = gauss(*ends, POINTS)
        apart = jax.tree.map(lambda x, y: jnp.abs(lax.stop_gradient(x - y)), share, gauss(*ends, FEWER))
        add = lambda x, y: jax.tree.map(jnp.add, x, y)
        return (add(total, share), add(error, apart)), None

    first = gauss(lower, lower + (upper - lower) / panels, POINTS)
    zeros = jax.tree.map(jnp.zeros_like, first)
    start = (zeros, jax.tree.map(jnp.abs, zeros))
    (total, error), _ = lax.scan(part, start, (left, right))
    return total, error, first


def is_accurate(total: PyTree, error: PyTree, tolerance: tuple[Any, Any]) -> Bool[Array, ""]:
    """Whether each number is within the tolerances (relative, absolute) that its array's largest is given."""
    rtol, atol = tolerance
    good = lambda x, e: jnp.max(jnp.abs(e)) <= atol + rtol * jnp.max(jnp.abs(x))
    checks = [
        good(lax.stop_gradient(x), lax.stop_gradient(e)) for x, e in zip(*map(jax.tree.leaves, (total, error)), strict=True)
    ]
    return jnp.all(jnp.stack(checks))


def tolerance_of(controller: Any, t: Float[Array, ""]) -> tuple[Any, Any]:
    """(Relative, absolute), as far as rounding allows; with fixed steps, what a method of high order may reach."""
    rtol, atol = getattr(controller, "rtol", 1e-8), getattr(controller, "atol", 1e-10)
    least = 64 * jnp.finfo(t.dtype).eps
    return jnp.maximum(jnp.asarray(rtol, t.dtype), least), jnp.asarray(atol, t.dtype)
