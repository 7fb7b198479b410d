"""Many small arrays carried as few: XLA on the CPU spends some 50 ns per array and loop iteration, whatever its size."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


class Packing:
    """How a PyTree of small arrays is laid out as one vector per dtype (booleans travel as int32)."""

    def __init__(self, like: PyTree[Array]):
        leaves, self.structure = jax.tree.flatten(like)
        self.shapes = [leaf.shape for leaf in leaves]
        self.dtypes = [leaf.dtype for leaf in leaves]
        self.carried = [jnp.dtype(jnp.int32) if dtype == bool else dtype for dtype in self.dtypes]

    def pack(self, tree: PyTree[Array]) -> tuple[Array, ...]:
        """One vector for each dtype, in the order in which the dtypes first appear."""
        leaves = zip(jax.tree.leaves(tree), self.carried, strict=True)
        flat = [(jnp.ravel(leaf).astype(dtype), dtype) for leaf, dtype in leaves]
        return tuple(jnp.concatenate([x for x, dtype in flat if dtype == kind]) for kind in self._kinds())

    def unpack(self, vectors: tuple[Array, ...]) -> PyTree[Array]:
        kinds = self._kinds()
        position = dict.fromkeys(kinds, 0)
        leaves = []
        for shape, dtype, kind in zip(self.shapes, self.dtypes, self.carried, strict=True):
            start = position[kind]
            position[kind] = start + math.prod(shape)
            leaves.append(vectors[kinds.index(kind)][start : position[kind]].reshape(shape).astype(dtype))
        return jax.tree.unflatten(self.structure, leaves)

    def _kinds(self) -> list:
        return list(dict.fromkeys(self.carried))

