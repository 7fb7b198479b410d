"""Several processes as one: each runs the same loop, and what only one of them can know is exchanged.

Collective computations wait for every process, so that a decision that one of them takes alone leaves the others waiting
without end. The time is therefore that of process 0, a signal to any process stops all, and an error of one is raised in
all.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh


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
