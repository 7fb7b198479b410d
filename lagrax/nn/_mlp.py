"""Vector fields that are multilayer perceptrons."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Inexact, PRNGKeyArray

from ._form import Form


def torch_uniform(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any = float) -> Inexact[Array, "..."]:
    """U(±1/√fan_in), as `torch.nn.Linear` draws its weights; `shape` is (fan_in, fan_out)."""
    bound = shape[0] ** -0.5
    return jr.uniform(key, shape, dtype, -bound, bound)


class MLPField(eqx.Module):
    """`x'(t) = W_out σ(… σ(W_in z + b))` with z made of the present and past states as `form` says.

    States have shape (..., size): leading axes are a batch that shares the steps of the solver. Differentiable in every
    weight and bias, the states and the time.

    **Arguments:**

    - `size`: components of the state, augmented ones included.
    - `width`, `depth`: units of a hidden layer, and how many hidden layers.
    - `form`: a [`lagrax.nn.Form`][].
    - `num_delays`: how many delays the equation has.
    - `activation`: σ, applied to arrays of any shape.
    - `use_bias`: whether the layers have biases.
    - `use_time`: whether the time is one more input.
    - `init`: `torch_uniform` draws weights and biases as PyTorch does. Any other initialiser `(key, (fan_in, fan_out),
      dtype)`, such as `jax.nn.initializers.glorot_normal()`, draws the weights, and biases start at zero.
    - `dtype`: of the weights; JAX's default precision if not given.
    - `key`: for the initial weights.
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable
    form: Form = eqx.field(static=True)
    use_time: bool = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        width: int,
        depth: int,
        form: Form = Form.CONCAT,
        num_delays: int = 1,
        activation: Callable = jnp.tanh,
        use_bias: bool = True,
        use_time: bool = False,
        init: Callable = torch_uniform,
        dtype: Any = float,
        key: PRNGKeyArray,
    ):
        if size < 1 or width < 1 or depth < 0:
            raise ValueError(f"got size {size}, width {width}, depth {depth}, expected size and width >= 1, depth >= 0")
        inputs = size * form.blocks(num_delays) + use_time
        sizes = [inputs, *[width] * depth, size]
        keys = jr.split(key, depth + 1)
        pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
        self.layers = tuple(_linear(a, b, use_bias, init, dtype, k) for a, b, k in pairs)
        self.activation, self.form, self.use_time = activation, form, use_time

    def __call__(
        self, t: Float[Array, ""] | float, y: Inexact[Array, "*batch d"], delayed: Any, args: Any
    ) -> Inexact[Array, "*batch d"]:
        x = self.form.combine(y, delayed)
        if self.use_time:
            time = jnp.broadcast_to(jnp.asarray(t).astype(x.dtype), (*x.shape[:-1], 1))
            x = jnp.concatenate([x, time], axis=-1)
        inputs = self.layers[0].weight.shape[1]
        if x.shape[-1] != inputs:
            raise ValueError(
                f"Form.{self.form.name} made an input of {x.shape[-1]} components, expected {inputs}: give the MLPField the "
                "size of the (augmented) state and the number of delays"
            )
        for layer in self.layers[:-1]:
            x = self.activation(_apply(layer, x))
        return _apply(self.layers[-1], x)


def _linear(fan_in: int, fan_out: int, use_bias: bool, init: Callable, dtype, key: PRNGKeyArray) -> eqx.nn.Linear:
    weight_key, bias_key = jr.split(key)
    layer = eqx.nn.Linear(fan_in, fan_out, use_bias, dtype, key=key)
    weight = init(weight_key, (fan_in, fan_out), dtype).T
    layer = eqx.tree_at(lambda linear: linear.weight, layer, weight)
    if not use_bias:
        return layer
    bias = torch_uniform(bias_key, (fan_in, fan_out), dtype)[0] if init is torch_uniform else jnp.zeros(fan_out, dtype)
    return eqx.tree_at(lambda linear: linear.bias, layer, bias)


def _apply(layer: eqx.nn.Linear, x: Inexact[Array, "*batch inputs"]) -> Inexact[Array, "*batch outputs"]:
    y = x @ layer.weight.T
    return y if layer.bias is None else y + layer.bias
