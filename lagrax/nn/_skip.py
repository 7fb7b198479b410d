"""A linear model that a network corrects."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from ._form import Form


class LinearSkip(eqx.Module):
    """`f = weight z + bias + network`, with z made of the present and past states as `form` says.

    A series that is nearly linear is learned faster and forecast more safely so: start `weight` and `bias` at a linear
    regression, and the network at zero (`MLPField(..., init=jax.nn.initializers.zeros)` is zero in every layer; zero in the
    last one is enough). States have shape (..., size). Differentiable in weight, bias and the network.

    **Arguments:**

    - `network`: any vector field `(t, y, delayed, args)`.
    - `weight`: (size, size · form.blocks(number of delays)).
    - `bias`: (size,), zeros if not given.
    """

    network: Callable
    weight: Float[Array, "d z"]
    bias: Float[Array, " d"]
    form: Form = eqx.field(static=True)

    def __init__(self, network: Callable, weight: Any, bias: Any = None, *, form: Form = Form.CONCAT):
        self.network, self.form = network, form
        self.weight = jnp.asarray(weight)
        self.bias = jnp.zeros(self.weight.shape[0], self.weight.dtype) if bias is None else jnp.asarray(bias)

    def __call__(self, t: Any, y: Inexact[Array, "*batch d"], delayed: Any, args: Any) -> Inexact[Array, "*batch d"]:
        z = self.form.combine(y, delayed)
        if z.shape[-1] != self.weight.shape[1]:
            raise ValueError(
                f"Form.{self.form.name} made an input of {z.shape[-1]} components, and the weight takes "
                f"{self.weight.shape[1]}, expected as many: give it a column for each component of all states"
            )
        return z @ self.weight.T + self.bias + self.network(t, y, delayed, args)
