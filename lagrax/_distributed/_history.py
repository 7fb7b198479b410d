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

# (Of five points, the second refused a smooth history: 2e-7 apart, with a tolerance of 1e-8.)
(_POINTS, _FACTORS), (_FEWER, _OTHERS) = (np.polynomial.legendre.leggauss(n) for n in (8, 7))
POINTS = np.concatenate([_POINTS, _FEWER])
FACTORS = np.stack([np.append(_FACTORS, np.zeros(len(_FEWER))), np.append(_FACTORS, -_OTHERS)])
"""Gauss's points on [-1, 1], of two rules, and the factors of the first rule, and of its distance from the second."""

AT_ONCE = 2**16
"""How many numbers of the history are computed at once: one part after the other only if the state is large."""


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

    def part(ends):
        a, b = ends
        points, factors = jnp.asarray(POINTS, a.dtype), jnp.asarray(FACTORS, a.dtype)
        times = (a + b) / 2 + points * (b - a) / 2
        k = factors[:, :, None] * ((b - a) / 2) * jax.vmap(weights)(times)
        total = lambda g: jnp.einsum("rpm,p...->rm...", k.astype(g.dtype), g)
        return jax.tree.map(total, jax.vmap(value)(times))

    size = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(value, lower)))
    together = max(1, AT_ONCE // (len(POINTS) * size))
    if together >= len(left):
        parts = jax.vmap(part)((left, right))
    else:  # each computed again on the way back, so that the history is not kept
        parts = lax.map(jax.checkpoint(part), (left, right), batch_size=together)
    pick = lambda i: jax.tree.map(lambda x: x[:, i], parts)
    sum_of = lambda tree: jax.tree.map(lambda x: jnp.sum(x, axis=0), tree)
    error = sum_of(jax.tree.map(lambda x: jnp.abs(lax.stop_gradient(x)), pick(1)))
    first = jax.tree.map(lambda x: x[0], part((lower, lower + (upper - lower) / panels)))
    return sum_of(pick(0)), error, first


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
