"""Which states a vector field sees: the present, the past, or both."""

import enum
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact


class Form(enum.Enum):
    """What a network `f` is applied to. With several delays, all past states take part in the same way."""

    CURRENT = "f(x(t))"
    DELAYED = "f(concat(x(t - τ₁), …, x(t - τₙ)))"
    SUM = "f(x(t) + x(t - τ₁) + … + x(t - τₙ))"
    CONCAT = "f(concat(x(t), x(t - τ₁), …, x(t - τₙ)))"

    def blocks(self, num_delays: int = 1) -> int:
        """How many states lie side by side in the input of the network."""
        return {Form.CURRENT: 1, Form.DELAYED: num_delays, Form.SUM: 1, Form.CONCAT: 1 + num_delays}[self]

    def combine(self, y: Inexact[Array, "..."], delayed: Any, axis: int = -1) -> Inexact[Array, "..."]:
        """The input of the network, from the state and the PyTree of past states, concatenated along `axis`."""
        if self is Form.CURRENT:
            return y
        past = jax.tree.leaves(delayed)
        if not past:
            raise ValueError(
                f"Form.{self.name} got no delayed states, expected at least one: use Form.CURRENT in a NeuralODE"
            )
        if self is Form.SUM:
            return sum(past, y)
        return jnp.concatenate(past if self is Form.DELAYED else [y, *past], axis)
