"""A neural delay equation for series: a linear part and a network, several members with delays of their own.

Time is counted in samples, and values are standardised. One step of Heun's method a sample, and straight lines between
samples of the past: what a series knows between its samples is little, and a training takes seconds.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ._record import AbstractRoll, Record


class SkipField(eqx.Module):
    """f = A z + c + MLP(z), with z the state, the delayed states, and season and inputs at time t."""

    matrix: Float[Array, "*members d z"]
    constant: Float[Array, "*members d"]
    network: eqx.nn.MLP

    def __init__(self, matrix: np.ndarray, constant: np.ndarray, *, key):
        d, inputs = matrix.shape
        network = eqx.nn.MLP(inputs, d, 24, 2, activation=jnp.tanh, dtype=jnp.float32, key=key)
        # The network starts at zero: what is trained at first is a correction of the linear model.
        last: Any = network.layers[-1]
        zero = lambda layer: (layer.weight, layer.bias)
        last = eqx.tree_at(zero, last, (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias)))
        self.network = eqx.tree_at(lambda mlp: mlp.layers[-1], network, last)
        self.matrix, self.constant = jnp.asarray(matrix, jnp.float32), jnp.asarray(constant, jnp.float32)

    def __call__(
        self, y: Float[Array, "b d"], delayed: Float[Array, "k b d"], more: Float[Array, "b m"]
    ) -> Float[Array, "b d"]:
        z = jnp.concatenate([y, *delayed, more], axis=-1)
        return z @ self.matrix.T + self.constant + jax.vmap(self.network)(z)


class Member(eqx.Module):
    """One network with its delays τ = 1 + (longest − 1) sigmoid(raw), in samples.

    If it is `anchored`, it sees how far states are from the mean of the past that a forecast starts from: where a series
    drifts, the future is at levels that were never seen.
    """

    field: SkipField
    raw: Float[Array, "*members k"]
    longest: float = eqx.field(static=True)
    anchored: bool = eqx.field(static=True, default=False)

    def delays(self) -> Float[Array, "*members k"]:
        return 1 + (self.longest - 1) * jax.nn.sigmoid(self.raw)

    def roll(
        self,
        past: Float[Array, "b l d"],
        more: Float[Array, "b m z"],
        low: Float[Array, "... d"],
        high: Float[Array, "... d"],
    ) -> Float[Array, "b h d"]:
        """The next h samples after `past`, with season and inputs `more` at h + 1 times from the last sample of the past on.

        Differentiable in everything. States are kept between `low` and `high`.
        """
        b, length, d = past.shape
        horizon = more.shape[1] - 1
        anchor = past.mean(axis=1) if self.anchored else jnp.zeros((b, d), past.dtype)
        past, low, high = past - anchor[:, None], low - anchor, high - anchor
        room = jnp.concatenate([past, jnp.zeros((b, horizon, d), past.dtype)], axis=1)
        delays = self.delays()

        def look(room, time):
            place = length - 1 + time - delays
            before = jnp.floor(lax.stop_gradient(place)).astype(jnp.int32)
            share = (place - before.astype(place.dtype))[:, None, None]
            rows = jnp.moveaxis(room, 1, 0)
            return rows[before] * (1 - share) + rows[before + 1] * share

        def step(room, k):
            time = k.astype(past.dtype)
            y = lax.dynamic_index_in_dim(room, length - 1 + k, 1, keepdims=False)
            first = self.field(y, look(room, time), lax.dynamic_index_in_dim(more, k, 1, keepdims=False))
            second = self.field(y + first, look(room, time + 1), lax.dynamic_index_in_dim(more, k + 1, 1, keepdims=False))
            new = jnp.clip(y + (first + second) / 2, low, high)
            return lax.dynamic_update_slice_in_dim(room, new[:, None], length + k, axis=1), new

        _, ahead = lax.scan(step, room, jnp.arange(horizon, dtype=jnp.int32))
        return jnp.moveaxis(ahead, 0, 1) + anchor[:, None]


class Ensemble(AbstractRoll):
    """Several members, whose median is the forecast; `mean`, `sd` (d,) standardise, `season` is in samples, or None.

    `member`: the arrays of all members, stacked. `past`: samples that a forecast starts from. `zero`, `step`: the time of
    the first sample and the time between two, which say where in its season a sample is.
    """

    member: Member
    mean: np.ndarray
    sd: np.ndarray
    inputs_mean: np.ndarray
    inputs_sd: np.ndarray
    season: int | None = eqx.field(static=True)
    past: int = eqx.field(static=True)
    zero: float = eqx.field(static=True)
    step: float = eqx.field(static=True)

    def more(self, record: Record) -> np.ndarray:
        """Season and inputs (n, m) of every row."""
        parts = [np.zeros((len(record.t), 0))]
        if self.season is not None:
            angle = 2 * np.pi * (record.t - self.zero) / (self.step * self.season)
            parts += [np.sin(angle)[:, None], np.cos(angle)[:, None]]
        if record.inputs is not None:
            parts.append((record.inputs - self.inputs_mean) / self.inputs_sd)
        return np.concatenate(parts, axis=1).astype(np.float32)

    def each(self, record: Record, origins: np.ndarray, horizon: int) -> np.ndarray:
        """The forecasts of all members (members, origins, horizon, d), transformed."""
        longer = record.extended(horizon)
        x = ((longer.u - self.mean) / self.sd).astype(np.float32)
        more = self.more(longer)
        past = x[np.maximum(origins[:, None] + np.arange(1 - self.past, 1), 0)]
        ahead = more[origins[:, None] + np.arange(horizon + 1)]
        if record.inputs is not None:  # which nobody knows ahead of an origin; the season everybody does
            own = more.shape[1] - record.inputs.shape[1]
            ahead[:, :, own:] = ahead[:, :1, own:]
        limits = [((limit - self.mean) / self.sd).astype(np.float32) for limit in record.limits(origins)]
        found = np.asarray(_roll(self.member, past, ahead, *limits), float)
        return found * self.sd + self.mean

    def ahead(self, record: Record, origins: np.ndarray, horizon: int) -> np.ndarray:
        return record.inside(np.median(self.each(record, origins, horizon), axis=0), origins)


@eqx.filter_jit
def _roll(member: Member, past, more, low, high) -> Float[Array, "members b h d"]:
    return eqx.filter_vmap(lambda one: one.roll(past, more, low, high))(member)


def gather(x: Float[Array, "n d"], rows: Int[Array, " b"], first: int, last: int) -> Float[Array, "b k d"]:
    """The samples from `first` to `last` (included), counted from each of the rows."""
    return x[rows[:, None] + jnp.arange(first, last + 1, dtype=jnp.int32)]
