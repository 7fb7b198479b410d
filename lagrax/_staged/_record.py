"""What the backward pass needs to know of each staged step besides its row."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._method import Method
from .._problem import Problem
from .._xla._buffer import read, write


class Note(eqx.Module):
    """One step: the rows that its stages read, which pieces they belong to, what its end depends on, and which source
    it is.

    `depends_on` is as in `_trajectory.py`, `j n + i` for a breakpoint at which lag i looks at source j. `source` is the
    number of the source at its end, -1 if there is none.
    """

    links: Int[Array, "stages n"]
    pieces: Int[Array, " n"]
    depends_on: Int[Array, ""]
    source: Int[Array, ""]


class Record(eqx.Module):
    """The notes of all steps, the numbers of a step in one row."""

    numbers: Int[Array, "steps numbers"]
    stages: int = eqx.field(static=True)

    def write(self, number: Int[Array, ""], note: Note) -> "Record":
        numbers = jnp.concatenate([note.links.reshape(-1), note.pieces, note.depends_on[None], note.source[None]])
        return Record(write(self.numbers, number, numbers), self.stages)

    def read(self, number: Int[Array, ""]) -> Note:
        numbers = read(self.numbers, number)
        n = (len(numbers) - 2) // (self.stages + 1)
        links = numbers[: self.stages * n].reshape(self.stages, n)
        return Note(links, numbers[self.stages * n : -2], numbers[-2], numbers[-1])


def empty_record(problem: Problem, method: Method, steps: int) -> Record:
    n = len(problem.lags)
    return Record(
        numbers=jnp.zeros((steps, (method.stages + 1) * n + 2), jnp.int32),
        stages=method.stages,
    )
