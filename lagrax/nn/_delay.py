"""Delays that are learned: a bounded parameter behind an ordinary delay leaf."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class LearnableDelay(eqx.Module):
    """A delay `τ` trained together with the network, kept inside `(lower, upper)`, in the units of time.

    `τ = lower + (upper - lower) · sigmoid(raw)`: smooth, so an optimiser never meets a wall, and inside the bounds, so the
    solver never sees a delay of zero. Differentiable in `raw`.

    ```python
    delays = (LearnableDelay(1.0, lower=0.2, upper=3.0), LearnableDelay(2.0, lower=0.2, upper=3.0), 5.0)
    ```
    """

    raw: Float[Array, ""]
    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def __init__(self, init: float, lower: float, upper: float):
        init, lower, upper = float(init), float(lower), float(upper)
        if not 0 < lower < init < upper < math.inf:
            raise ValueError(
                f"got init = {init}, lower = {lower}, upper = {upper}, expected 0 < lower < init < upper < ∞: widen the "
                "bounds or move the start"
            )
        self.raw = jnp.array(math.log((init - lower) / (upper - init)), float)
        self.lower, self.upper = lower, upper

    def __call__(self) -> Float[Array, ""]:
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(self.raw)


class SharedDelay(eqx.Module):
    """Several delays that share one: `(m₁ τ, m₂ τ, …)` for fixed factors m, τ a `LearnableDelay` or a number.

    With factors (1, 2, 3) this is a window into the past whose spacing is learned.
    """

    delay: Any
    factors: tuple[float | int, ...] = eqx.field(static=True)

    def __init__(self, delay: Any, factors: tuple[float | int, ...]):
        if not factors or not all(0 < factor < math.inf for factor in factors):
            raise ValueError(f"factors = {factors}, expected positive finite numbers: pass a tuple such as (1.0, 2.0)")
        self.delay = delay
        self.factors = tuple(float(factor) for factor in factors)

    def __call__(self) -> tuple[Any, ...]:
        delay = self.delay() if callable(self.delay) else self.delay
        return tuple(factor * delay for factor in self.factors)
