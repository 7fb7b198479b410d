"""Where arrays are: on one device, or on those that the data is spread over."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree


def mesh_of(data: PyTree) -> Mesh | None:
    """The devices that the data is spread over by a `NamedSharding`, if it is.

    On a mesh with explicit axes JAX asks for the placement of each intermediate result, the loss's included; here the
    compiler shall decide.
    """
    shardings = [leaf.sharding for leaf in jax.tree.leaves(data) if isinstance(leaf, jax.Array)]
    meshes = [sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)]
    given = next((mesh for mesh in meshes if isinstance(mesh, Mesh)), None)
    return None if given is None else Mesh(given.devices, given.axis_names)


def spread(data: PyTree, mesh: Mesh | None) -> PyTree:
    """The data's arrays on this mesh, those that are not spread yet as a whole on each of its devices."""

    def place(x):
        if mesh is None or not isinstance(x, jax.Array):
            return x
        spec = x.sharding.spec if isinstance(x.sharding, NamedSharding) else PartitionSpec()
        return placed(x, NamedSharding(mesh, spec))

    return jax.tree.map(place, data)


def placed(x: jax.Array, where: NamedSharding) -> jax.Array:
    """The array at another place, of which other processes may hold a part."""
    if where.is_fully_addressable or not x.is_fully_addressable:
        return jax.device_put(x, where)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jr.wrap_key_data(placed(jr.key_data(x), where), impl=jr.key_impl(x))
    # `device_put` would have all processes compare the array. A copy for each device, because the loop reuses its memory.
    host = np.asarray(x)
    return jax.make_array_from_callback(x.shape, where, lambda index: np.array(host[index]))


def on_host(leaf: Any) -> Any:
    """A copy of an array that outlives it; random keys stay what they are."""
    if not eqx.is_array(leaf):
        return leaf
    # Of what is the same everywhere, the part here is the whole, and asks nothing of other processes.
    leaf = leaf if leaf.is_fully_addressable else leaf.addressable_data(0)
    return jnp.copy(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.array(leaf)


def readable(leaf: Any) -> bool:
    """Whether all of an array is here; what other processes hold cannot be read."""
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated
