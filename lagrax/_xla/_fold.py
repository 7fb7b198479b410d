"""Reductions of a few numbers, by halves.

XLA makes a function of every reduction, and hands buffers for its arguments to the program at each call: 75 ns for each of
them, more than a small sum takes. Written out as elementwise operations they cost nothing but themselves.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

FEW = 64
"""More numbers than these are worth a reduction."""


def fold(operation: Callable[[Any, Any], Any], tree: PyTree[Array]) -> PyTree[Array]:
    """All entries along the first axis as one, by an associative operation of two PyTrees. (There is at least one entry.)"""
    size = jax.tree.leaves(tree)[0].shape[0]
    if size == 1:
        return jax.tree.map(lambda x: lax.squeeze(x, [0]), tree)
    half = size // 2
    part = lambda start, end: jax.tree.map(lambda x: lax.slice_in_dim(x, start, end), tree)
    folded = operation(part(0, half), part(half, 2 * half))
    if size % 2:
        folded = jax.tree.map(lambda x, last: jnp.concatenate([x, last]), folded, part(size - 1, size))
    return fold(operation, folded)


def any_of(flags: Bool[Array, "*shape"]) -> Bool[Array, ""]:
    return fold(jnp.logical_or, flags.reshape(-1)) if flags.size <= FEW else jnp.any(flags)


def largest(values: Float[Array, "*shape"]) -> Float[Array, ""]:
    return fold(jnp.maximum, values.reshape(-1)) if values.size <= FEW else jnp.max(values)


def first_of(flags: Bool[Array, " k"]) -> Int[Array, ""]:
    """The number of the first flag that is set; k if there is none."""
    return fold(jnp.minimum, jnp.where(flags, jnp.arange(len(flags), dtype=jnp.int32), len(flags)))


def highest_of(values: Float[Array, " k"]) -> Int[Array, ""]:
    """The number of the largest value, the first if there are several."""

    def higher(a, b):
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)

    return fold(higher, (values, jnp.arange(len(values), dtype=jnp.int32)))[1]
