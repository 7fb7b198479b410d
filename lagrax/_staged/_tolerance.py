"""How exactly a step knows what it knows: the error that it may make, and rounding."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from .._problem import Problem
from .._setup import Setup


def slack_of(problem: Problem) -> Float[Array, ""]:
    """By how much a lag may look beyond an end of its piece because of rounding."""
    return 64 * jnp.finfo(problem.t0.dtype).eps * jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))


def tolerance(y: Inexact[Array, " d"], setup: Setup) -> Float[Array, " d"]:
    """The error that a step may make; with fixed steps, what rounding leaves."""
    controller: Any = setup.controller
    size = jnp.abs(y)
    if not (hasattr(controller, "rtol") and hasattr(controller, "atol")):
        eps = jnp.finfo(size.dtype).eps
        return 1e4 * eps * jnp.maximum(size, jnp.max(size) + eps)
    least = lambda x: jnp.min(jnp.stack([jnp.min(jnp.asarray(leaf, size.dtype)) for leaf in jax.tree.leaves(x)]))
    return least(controller.atol) + least(controller.rtol) * size
