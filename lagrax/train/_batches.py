"""Minibatches: every epoch a new shuffle, drawn from the key alone.

The samples of epoch 0, those of epoch 1, and so on form one endless stream, which is cut into batches of equal size. An
epoch whose size is no multiple of the batch's ends inside a batch, and the next epoch's shuffle fills the rest: every
epoch has every sample exactly once, no sample is dropped and no batch is smaller.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Int, PyTree


class Stream(eqx.Module):
    """A place in the stream: the shuffles of this epoch and the next, and how much of this one is used up.

    `order` has shape (2 · size,), or (seeds, 2 · size).
    """

    order: Int[Array, "*seeds samples"]
    epoch: Int[Array, ""]
    position: Int[Array, ""]


def start_of(iteration: int, batch_size: int | None, size: int) -> tuple[int, int]:
    """The epoch, and the position in it, at which the batch of an iteration begins."""
    return divmod(iteration * batch_size, size) if batch_size else (0, 0)


def shuffled(key: Array, epoch: Int[Array, ""], size: int) -> Int[Array, " samples"]:
    """The samples in the order of this epoch and, after them, of the next."""
    one = lambda epoch: jr.permutation(jr.fold_in(key, epoch), size).astype(jnp.int32)
    return jnp.concatenate([one(epoch), one(epoch + 1)])


def indices(stream: Stream, batch_size: int) -> Int[Array, "*seeds batch"]:
    return lax.dynamic_slice_in_dim(stream.order, stream.position, batch_size, axis=-1)


def advance(stream: Stream, batch_size: int, size: int, shuffle: Callable) -> Stream:
    """The stream one batch further. `shuffle(epoch)` is called where an epoch begins."""
    position = stream.position + batch_size
    over = position >= size
    epoch = stream.epoch + over.astype(jnp.int32)
    order = lax.cond(over, lambda: shuffle(epoch), lambda: stream.order)
    return Stream(order, epoch, jnp.where(over, position - size, position))


def take(data: PyTree, index: Int[Array, " batch"]) -> PyTree:
    """The samples at these indices of the leading axis of every array."""
    return jax.tree.map(lambda x: x[index], data)
