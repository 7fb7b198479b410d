"""Parameters that change with time: a vector field whose weights follow an equation of their own."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree


def count_parameters(module: PyTree) -> int:
    """How many numbers in `module` are trained: the sizes of its floating-point arrays (or shapes of them) together."""
    leaves = [leaf for leaf in jax.tree.leaves(module) if isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)]
    return sum(math.prod(leaf.shape) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact))


class Driven(eqx.Module):
    """The state (h, w): what is modelled, and the parameters on their way. `w` is a vector, or None if there are none."""

    h: PyTree
    w: PyTree


class TimeDependentParameters(eqx.Module):
    """`h'(t) = f(t, h(t), h(t - τ); w(t))`, `w'(t) = q(t, w(t))`, with learnable `w(0)` and `q`.

    The state is a `Driven(h, w)`; the models build it and take it apart, so that this takes the place of any vector field.
    w is shared by a batch in the state.

    **Arguments:**

    - `field`: any vector field `f(t, y, delayed, args)`. Its floating-point arrays, laid out as one vector, are `w(0)`.
    - `evolution`: q, a vector field `q(t, w, None, args)` on vectors of `count_parameters(field)` components, for example
      an [`lagrax.nn.MLPField`][] with `Form.CURRENT`.
    """

    field: Callable
    evolution: Callable

    def initial_parameters(self) -> Float[Array, " m"]:
        """w(0)."""
        return ravel_pytree(eqx.filter(self.field, eqx.is_inexact_array))[0]

    def __call__(self, t: Float[Array, ""] | float, y: Driven, delayed: PyTree, args: Any) -> Driven:
        initial, rest = eqx.partition(self.field, eqx.is_inexact_array)
        _, unravel = ravel_pytree(initial)
        field = eqx.combine(unravel(y.w), rest)
        past = jax.tree.map(lambda state: state.h, delayed, is_leaf=is_driven)
        return Driven(field(t, y.h, past, args), self.evolution(t, y.w, None, args))


def is_driven(state: Any) -> bool:
    return isinstance(state, Driven)


def attach(field: Callable, h: PyTree) -> PyTree:
    """The state that `field` works on: h, joined by w(0) if the parameters depend on time."""
    return Driven(h, field.initial_parameters()) if isinstance(field, TimeDependentParameters) else h


def detach(state: PyTree) -> PyTree:
    """h of any state."""
    return state.h if is_driven(state) else state
