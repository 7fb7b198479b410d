"""Vector fields: which states they see, multilayer perceptrons, and a linear model that a network corrects."""

import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Inexact, PRNGKeyArray


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
