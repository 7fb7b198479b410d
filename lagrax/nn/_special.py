"""Delay equations that do by construction what no neural ODE of the same dimension can."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from ._models import NeuralDDE


class RadialField(eqx.Module):
    """`h₁' = ‖h(t - τ)‖ - r`, all other components at rest: points move by how far out they started."""

    radius: float = eqx.field(static=True, converter=float)

    def __call__(
        self, t: Float[Array, ""], y: Inexact[Array, "*batch d"], delayed: Inexact[Array, "*batch d"], args: Any
    ) -> Inexact[Array, "*batch d"]:
        square = jnp.sum(delayed**2, axis=-1)
        # The norm has no derivative at zero; a point there is given the derivative 0.
        norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
        return jnp.zeros_like(y).at[..., 0].set(norm - self.radius)


class ResidualField(eqx.Module):
    """`h' = G(h(t - τ))` with G(z) = (F(z) - z) / T for a map F."""

    function: Callable
    t1: float = eqx.field(static=True, converter=float)

    def __call__(self, t: Float[Array, ""], y: Inexact[Array, "..."], delayed: Inexact[Array, "..."], args: Any):
        return (self.function(delayed) - delayed) / self.t1


def separating_dde(r1: float, r2: float, t1: float = 10.0) -> NeuralDDE:
    """Proposition 1: sends the ball ‖x‖ ≤ r1 and the shell ‖x‖ ≥ r2 of any dimension apart along the first axis.

    With r = (r1 + r2)/2 and T = τ = t1, h₁(T) = x₁ + T (‖x‖ - r): if T is large enough, a hyperplane separates them. States
    have shape (..., d).
    """
    if not 0 < r1 < r2:
        raise ValueError(f"got r1 = {r1} and r2 = {r2}, expected 0 < r1 < r2: the ball lies inside the shell")
    return NeuralDDE(RadialField((r1 + r2) / 2), t1, t1=t1)


def representing_dde(function: Callable, t1: float = 1.0) -> NeuralDDE:
    """Theorem 2: the delay equation with `h(T) = F(x)` for any map F from states to states.

    While t ≤ T = τ the field reads the input, so that h(T) = x + T G(x) = F(x). F takes and returns states of the shape
    that the model is called with. Differentiable in F's parameters if it is a module.
    """
    return NeuralDDE(ResidualField(function, t1), t1, t1=t1)
