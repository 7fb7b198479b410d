"""Reading and writing a buffer by number.

What indexing does, but for numbers that are known not to be negative: for any others it adds three operations to every
access, which take their time in tracing, compiling and running.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, Shaped

LARGE = 2**18
"""Bytes of a buffer that is not read by gathers."""


def read(buffer: Shaped[Array, "size *shape"], number: Int[Array, ""]) -> Shaped[Array, "*shape"]:
    """`buffer[number]`, of a number that is not negative."""
    return lax.squeeze(read_some(buffer, number, 1), [0])


def read_some(buffer: Shaped[Array, "size *shape"], start: Int[Array, ""], count: int) -> Shaped[Array, "count *shape"]:
    """`buffer[start : start + count]`, from a start that is not negative."""
    return lax.dynamic_slice(buffer, _first(buffer, start), (count, *buffer.shape[1:]), allow_negative_indices=False)


def read_each(buffer: Shaped[Array, "size *shape"], numbers: Int[Array, " k"]) -> Shaped[Array, "k *shape"]:
    """`buffer[numbers]`, of numbers that are not negative.

    Out of a large buffer by one slice each: XLA prices a gather by its whole operand and splits it over threads once that
    exceeds half a megabyte, and the hand-over costs twice a solver's step (2.5 to 5.5 µs). Out of a small one by a gather:
    it becomes one with what uses the rows, and a step of a scalar equation takes 0.87 times as long.
    """
    if buffer.nbytes > LARGE:
        return jnp.stack([read(buffer, number) for number in jnp.unstack(numbers)])
    return buffer.at[numbers].get(mode="promise_in_bounds", wrap_negative_indices=False)


def write(
    buffer: Shaped[Array, "size *shape"], number: Int[Array, ""], value: Shaped[Array, "*shape"]
) -> Shaped[Array, "size *shape"]:
    """The buffer with `value` at a number that is not negative."""
    row = lax.expand_dims(value, [0])
    return lax.dynamic_update_slice(buffer, row, _first(buffer, number), allow_negative_indices=False)


def _first(buffer: Array, number: Int[Array, ""]) -> tuple[Any, ...]:
    """The indices of the first entry of row `number`."""
    return (number, *[number.dtype.type(0)] * (buffer.ndim - 1))
