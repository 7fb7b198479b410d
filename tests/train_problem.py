"""A training problem of a few microseconds per iteration, shared by the tests of `lagrax.train`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax


class Line(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    steps: jax.Array  # an integer array: not trained
    name: str = "line"

    def __init__(self, key):
        self.weight, self.bias, self.steps = jr.normal(key, (3,)), jnp.zeros(()), jnp.array(2)


def loss(model, batch, key):
    """A noisy one, so that the random state matters."""
    x, y = batch
    noise = 0.01 * jr.normal(key, (3,))
    error = jnp.tanh(x @ (model.weight + noise)) + model.bias - y
    value = jnp.mean(error**2)
    return value, {"forward evaluations": model.steps * 3, "per sign": jnp.stack([jnp.max(error), jnp.min(error)])}


def data(samples=10):
    x = jr.normal(jr.key(5), (samples, 3))
    return x, jnp.sin(x[:, 0])


optimizer = optax.adam(optax.cosine_decay_schedule(0.05, 1000))
