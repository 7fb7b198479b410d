"""Several devices, and several processes, as one.

Arrays are on one device, or on those that the data is spread over. Each process runs the same loop, and what only one of
them can know is exchanged: collective computations wait for every process, so that a decision that one of them takes alone
leaves the others waiting without end. The time is therefore that of process 0, a signal to any process stops all, and an
error of one is raised in all.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.experimental import multihost_utils
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


def on_mesh(data: PyTree, mesh: Mesh | None) -> PyTree:
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


class Processes:
    """The processes that train together: all of them if the data is on devices of several, otherwise this one alone.

    Every method that exchanges something has to be called by all processes, and does nothing if there is but one.
    """

    def __init__(self, mesh: Mesh | None):
        found = set() if mesh is None else {device.process_index for device in mesh.devices.flat}
        self.several = len(found) > 1
        if self.several and len(found) < jax.process_count():
            raise ValueError(
                f"the data is on devices of {len(found)} of {jax.process_count()} processes, expected one process or all: "
                "make the mesh of jax.devices()"
            )
        self.writes = not self.several or jax.process_index() == 0  # files and progress

    def agree(self, flag: bool, *numbers: float) -> tuple[bool, tuple[float, ...]]:
        """Whether any process says so, and the numbers of process 0."""
        if not self.several:
            return flag, numbers
        everyones = _gather(flag, *numbers)
        return bool(everyones[:, 0].any()), tuple(everyones[0, 1:].tolist())

    @contextmanager
    def safely(self, what: str) -> Iterator[None]:
        """Around what may fail in one process: no process goes on before it has succeeded in all."""
        if not self.several:
            yield
            return
        try:
            yield
        except Exception:
            _gather(True)
            raise
        failed = np.flatnonzero(_gather(False)[:, 0])
        if failed.size:
            raise RuntimeError(
                f"{what} failed in process {failed[0]}, expected it to succeed in all: the message of that process says why"
            )

    def check_same(self, given: dict[str, Any]) -> None:
        """Raises in all processes if one was given something else than process 0."""
        if not self.several:
            return
        everyones = _gather(*(zlib.crc32(repr(value).encode()) for value in given.values()))
        for name, column in zip(given, everyones.T, strict=True):
            others = np.flatnonzero(column != column[0])
            if others.size:
                raise ValueError(
                    f"process {others[0]} was given another {name} than process 0, expected the same: start all processes "
                    "with equal arguments"
                )

    def from_first(self, content: bytes) -> bytes:
        """The bytes of process 0."""
        if not self.several:
            return content
        _, (size,) = self.agree(False, len(content))
        # The others' bytes are ignored, but their number is not.
        mine = np.frombuffer(content if self.writes else bytes(int(size)), np.uint8)
        return multihost_utils.broadcast_one_to_all(mine).tobytes() if size else b""


def _gather(*numbers: float) -> np.ndarray:
    """The numbers of all processes, a row each. They travel as integers, which JAX does not round to single precision."""
    mine = np.array(numbers, np.float64).view(np.int32)
    return np.ascontiguousarray(multihost_utils.process_allgather(mine)).view(np.float64)
