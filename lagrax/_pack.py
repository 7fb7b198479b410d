"""Many small arrays carried as few.

XLA runs a loop body on the CPU as a list of kernels, at 30 to 100 ns each whatever their size. Each array that a loop
carries costs a kernel, and often a copy; carried as one vector per dtype, the small arrays of the solver's loop leave 24
kernels of 40 (Mackey–Glass, jaxlib 0.10).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

SMALL = 64
"""Arrays of at most this many numbers are packed; larger ones stay as they are."""


class Packing:
    """How the small arrays of a PyTree are laid out in vectors (booleans travel as int32)."""

    def __init__(self, like: PyTree[Array]):
        leaves, structure = jax.tree.flatten(like)
        self.structure: Any = structure
        self.leaves = [(leaf.shape, leaf.dtype) for leaf in leaves]
        self.small = [leaf.size <= SMALL for leaf in leaves]
        carried = [jnp.dtype(jnp.int32) if leaf.dtype == bool else leaf.dtype for leaf in leaves]
        self.kinds = list(dict.fromkeys(kind for kind, small in zip(carried, self.small, strict=True) if small))
        self.slot = [self.kinds.index(kind) if small else -1 for kind, small in zip(carried, self.small, strict=True)]

    def pack(self, tree: PyTree[Array]) -> tuple[list[Array], list[Array]]:
        """(one vector per dtype, the large arrays)."""
        leaves = self.structure.flatten_up_to(tree)
        vectors: list[list[Array]] = [[] for _ in self.kinds]
        large = []
        for leaf, slot in zip(leaves, self.slot, strict=True):
            if slot < 0:
                large.append(leaf)
            else:
                vectors[slot].append(jnp.ravel(leaf).astype(self.kinds[slot]))
        return [jnp.concatenate(vector) for vector in vectors], large

    def unpack(self, packed: tuple[list[Array], list[Array]]) -> PyTree[Array]:
        vectors, large = packed[0], iter(packed[1])
        position = [0] * len(vectors)
        leaves = []
        for (shape, dtype), slot in zip(self.leaves, self.slot, strict=True):
            if slot < 0:
                leaves.append(next(large))
            else:
                start = position[slot]
                position[slot] = start + math.prod(shape)
                leaves.append(vectors[slot][start : position[slot]].reshape(shape).astype(dtype))
        return jax.tree.unflatten(self.structure, leaves)
