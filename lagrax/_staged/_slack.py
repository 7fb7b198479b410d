"""How exactly a step knows where it looks: what rounding leaves."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._problem import Problem


def slack_of(problem: Problem) -> Float[Array, ""]:
    """By how much a lag may look beyond an end of its piece because of rounding."""
    return 64 * jnp.finfo(problem.t0.dtype).eps * jnp.maximum(jnp.abs(problem.t0), jnp.abs(problem.t1))
