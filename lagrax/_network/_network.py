"""A network: delayed terms as elements, one component of the state after its own delay each."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from .._lag import Elements


class Network(eqx.Module):
    """Which component each element reads. A number among the delays is as many elements as the state has components."""

    senders: Int[Array, " e"]
    valid: Bool[Array, ""]
    parts: tuple[tuple[tuple[int, ...], Any] | None, ...] = eqx.field(static=True)
    """(Shape, dtype) of what stands for each of the delays; None for a whole state."""
    overlaps: bool = eqx.field(static=True)

    def delays(self, lags, d: int, dtype) -> Float[Array, " e"]:
        """The delay of every element."""
        each = lambda lag: jnp.broadcast_to(jnp.asarray(lag.delays, dtype), lag.shape).reshape(-1)
        whole = lambda lag: jnp.full(d, jnp.asarray(lag.delay, dtype))
        return jnp.concatenate([each(lag) if isinstance(lag, Elements) else whole(lag) for lag in lags])

    def shortest(self, lags, dtype) -> Float[Array, ""]:
        """The least of the delays that steps must not exceed; ∞ if there is none."""
        lengths = [jnp.asarray(lag.shortest(), dtype) for lag in lags if not lag.overlaps]
        return lax.stop_gradient(jnp.min(jnp.stack([jnp.full((), jnp.inf, dtype), *lengths])))

    def leaves(self, seen: Inexact[Array, " e"], y: Inexact[Array, " d"], time_dtype, problem: Any) -> list:
        """What stands for each of the delays at the state y, given the elements that were looked up.

        An element without delay is the state itself. (There `seen` is zero, and only carries derivatives.)
        """
        d, unravel = y.size, problem.unravel
        if self.overlaps:
            here = read_components(y, self.senders) + seen
            seen = jnp.where(self.delays(problem.lags, d, time_dtype) == 0, here, seen)
        leaves, start = [], 0
        for part in self.parts:
            if part is None:
                leaves.append(unravel(lax.slice(seen, (start,), (start + d,))))
                start += d
                continue
            shape, dtype = part
            leaf = lax.slice(seen, (start,), (start + _size(shape),)).reshape(shape)
            leaf = leaf if jnp.issubdtype(dtype, jnp.complexfloating) else leaf.real
            leaves.append(leaf.astype(dtype))
            start += _size(shape)
        return leaves

    def examples(self, states: list) -> list:
        """Something of the shape of what stands for each of the delays."""
        return [state if part is None else jnp.zeros(*part) for state, part in zip(states, self.parts, strict=True)]


def network_of(lags, d: int) -> Network | None:
    """The network that the delays are, if there is an array among them."""
    arrays = [lag for lag in lags if isinstance(lag, Elements)]
    if not arrays:
        return None
    everything = jnp.arange(d, dtype=jnp.int32)
    return Network(
        senders=jnp.concatenate([lag.senders if isinstance(lag, Elements) else everything for lag in lags]),
        valid=jnp.all(jnp.stack([lag.valid for lag in arrays])),
        parts=tuple((lag.shape, lag.dtype) if isinstance(lag, Elements) else None for lag in lags),
        overlaps=any(lag.overlaps for lag in lags),
    )


def read_components(y: Inexact[Array, "d *rest"], senders: Int[Array, " e"]) -> Inexact[Array, "e *rest"]:
    return y.at[senders].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
