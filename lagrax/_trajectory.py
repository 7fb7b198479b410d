"""What a solve leaves behind: the accepted steps, how they hang together, and how it ended."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int, PyTree

from ._results import RESULTS
from ._xla._buffer import read, write

FROZEN, END, DECLARED = -1, -2, -3
"""What the time of a mesh point depends on, if not on delays: on nothing, on t1, or (DECLARED - k) on declared jump k."""


class Record(eqx.Module):
    """What a backward pass needs to know of each step besides its row.

    Packed, for a step is one write: `links[i]` holds the row that each of `lookups` read, then for each delay which piece of
    the past it was reading (`_planned/_breakpoints.py`), then what the time of the step's end depends on.
    """

    links: Int[Array, "steps links"]
    slopes: Inexact[Array, "steps slopes"] | None
    """The slopes of all stages, one after another, if they are kept."""
    delays: int = eqx.field(static=True)

    def write(self, number, lookups: Int[Array, "nodes n"], pieces: Int[Array, " n"], depends_on, slopes) -> "Record":
        """With step `number`."""
        link = jnp.concatenate([lookups.reshape(-1), pieces, depends_on[None]])
        kept = None if self.slopes is None else write(self.slopes, number, jnp.concatenate(slopes))
        return Record(write(self.links, number, link), kept, self.delays)

    def read(self, number: Int[Array, ""]) -> tuple[Int[Array, "nodes n"], Int[Array, " n"], Inexact[Array, " k"] | None]:
        """(Which row each node and delay looked up, which pieces the delays were reading, the slopes) of a step."""
        link = read(self.links, number)
        lookups = link[: -self.delays - 1].reshape(-1, self.delays)
        return lookups, link[-self.delays - 1 : -1], None if self.slopes is None else read(self.slopes, number)

    def with_dependence(self, number: Int[Array, ""], depends_on, known: Bool[Array, ""]) -> "Record":
        """With another note of what the end of step `number` depends on, where that is now known."""
        place = (number, jnp.int32(self.links.shape[1] - 1))
        value = jnp.where(known, depends_on, self.links[place])
        return Record(lax.dynamic_update_slice(self.links, value.reshape(1, 1), place), self.slopes, self.delays)

    def jump_at(self, number: Int[Array, ""]) -> Int[Array, ""]:
        """Which declared jump step `number` ends at, -1 if it does not."""
        return declared_jump(read(self.links, number)[-1])

    @property
    def depends_on(self) -> Int[Array, " steps"]:
        """What the time of each step's end depends on."""
        return self.links[:, -1]


def declared_jump(depends_on: Int[Array, ""]) -> Int[Array, ""]:
    """The number of the declared jump that a mesh point is, -1 if it is none."""
    return jnp.where(depends_on <= DECLARED, DECLARED - depends_on, -1)


class Trajectory(eqx.Module):
    """A solve: all that saving, events and adjoints work from.

    `past`, `sources` (the breakpoints) and `record` are None where nobody reads them; the latter two are as the loop that
    solved it has them. `count` steps were accepted of `attempts`.
    """

    past: Any
    record: Any
    sources: Any
    t_end: Float[Array, ""]
    y_end: Inexact[Array, " d"]
    count: Int[Array, ""]
    attempts: Int[Array, ""]
    evaluations: Int[Array, ""]
    result: RESULTS
    event_mask: PyTree
    memory_needed: Any = None
    """With bounded memory, how many rows would have done."""


class Cotangents(eqx.Module):
    """The cotangents of a trajectory, and whether any of them is not zero."""

    rows: Inexact[Array, "rows row"]
    sources: Any
    """Of the sources' times, or None if nobody reads them."""
    y_end: Inexact[Array, " d"]
    t_end: Float[Array, ""]
    asked: Bool[Array, ""]


def spoil(bar: PyTree, bad: Bool[Array, ""], asked: Bool[Array, ""]) -> PyTree:
    """NaN for what is the gradient of a solve that failed; zero where nothing asks for it, as a loss that leaves out failed
    lanes."""
    instead = lambda x: jnp.where(asked, jnp.nan, 0).astype(x.dtype)
    return jax.tree.map(lambda x: jnp.where(bad, instead(x), x) if eqx.is_inexact_array(x) else x, bar)


def add_to(bar: Any, where: Callable, more: tuple) -> Any:
    """A cotangent with some of its entries increased; those that are not asked for (None) stay out."""
    added = tuple(None if old is None else old + new for old, new in zip(where(bar), more, strict=True))
    return eqx.tree_at(where, bar, added, is_leaf=lambda x: x is None)
