"""The past in bounded memory: a ring of rows, the next one in the place of the oldest; and how many rows it has.

`memory` of a solve says how many; `rows_of` refuses what cannot be solved with some of the past.
"""

import math
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from ._check import concrete
from ._lag import are_planned, is_lag
from ._method import Method
from ._past import evaluate, split_rows
from ._problem import Problem
from ._xla._buffer import read, read_each, read_some, write
from ._xla._compat import unvmap_any

LEAST = 16
"""Rows that every ring has: twice the window that a lookup searches."""

AUTOMATIC, PER_DELAY = 1024, 256
"""Rows that "auto" takes at least with adaptive steps, and for each length of the smallest delay in the largest."""


class Ring(eqx.Module):
    """The last R accepted steps, R a power of two: step number k in row `k & (R - 1)`. Used as `Past` is.

    The start times are those of the last R steps, the first few once more behind the last so that a window of them can be
    read from anywhere; or those of all steps, if they are `kept` for a backward pass, which takes the same steps again.
    """

    rows: Inexact[Array, "rows row"]
    starts: Float[Array, " starts"]
    count: Int[Array, ""]
    last: Int[Array, ""]
    spare: int = eqx.field(static=True)
    kept: bool = eqx.field(static=True)

    def append(self, row: Inexact[Array, " row"], t, t_end, keep: Bool[Array, ""]) -> "Ring":
        """As `Past.append`."""
        place, t_start = self.place(self.count), lax.stop_gradient(t)
        if self.kept:
            starts = write(self.starts, self.count, t_start)
        else:
            again = jnp.where(place < self.spare, place + len(self.rows), place)
            starts = write(write(self.starts, place, t_start), again, t_start)
        return Ring(
            rows=write(self.rows, place, row),
            starts=starts,
            count=self.count + keep.astype(jnp.int32),
            last=jnp.where(keep & (t_end > t), self.count, self.last),
            spare=self.spare,
            kept=self.kept,
        )

    def place(self, numbers: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
        return numbers & np.int32(len(self.rows) - 1)

    def read(self, numbers: Int[Array, "*shape"]) -> Inexact[Array, "*shape row"]:
        """As `Past.read`."""
        found = read_each(self.rows, self.place(jnp.maximum(numbers, 0)).reshape(-1))
        return found.reshape(*numbers.shape, self.rows.shape[1])

    def ahead(self, number: Int[Array, ""], size: int) -> Float[Array, " size"]:
        """As `Past.ahead`."""
        if self.kept:
            return read_some(self.starts, number, size)
        starts = read_some(self.starts, self.place(number), size)
        return jnp.where(number + np.arange(size, dtype=np.int32) < self.count, starts, jnp.inf)

    def oldest(self) -> Float[Array, ""]:
        """The start of the first step that is still there."""
        number = jnp.maximum(self.count - len(self.rows), 0)
        return read(self.starts, number if self.kept else self.place(number))

    def in_order(self) -> Inexact[Array, "rows row"]:
        """The rows from the oldest to the latest; those not written yet come first."""
        return jnp.roll(self.rows, -self.place(self.count), axis=0)


def empty_ring(size: int, steps: int | None, method: Method, problem: Problem, spare: int) -> Ring:
    """Room for `size` rows, and for the start times of all `steps` if they are to be kept."""
    width = 2 + (len(method.dense) + 1) * problem.y0.size
    zero = jnp.zeros((), jnp.int32)
    return Ring(
        rows=jnp.zeros((size, width), jnp.promote_types(problem.t0.dtype, problem.y0.dtype)),
        starts=jnp.full((size if steps is None else steps) + spare, jnp.inf, problem.t0.dtype),
        count=zero,
        last=zero,
        spare=spare,
        kept=steps is not None,
    )


class Ends(eqx.Module):
    """What a backward pass needs to know of each step, besides when it starts, to take it once more: used as `Record` is.

    `numbers[i]` holds for each delay which piece of the past it was reading, then what the step's end depends on.
    """

    numbers: Int[Array, "steps numbers"]

    def write(self, number, lookups, pieces: Int[Array, " n"], depends_on, slopes) -> "Ends":
        return Ends(write(self.numbers, number, jnp.append(pieces, depends_on)))

    def with_dependence(self, number: Int[Array, ""], depends_on, known: Bool[Array, ""]) -> "Ends":
        old = read(self.numbers, number)
        value = jnp.where(known, depends_on, old[-1])
        return Ends(write(self.numbers, number, jnp.append(old[:-1], value)))


class Observed(eqx.Module):
    """What a bounded solve has to write down as it goes: what is saved at `ts`, of which `size` have been passed."""

    ts: Float[Array, " times"]
    ys: Inexact[Array, "times k"]
    size: Int[Array, ""]
    limit: Int[Array, ""]
    """The number of steps at which the loop pauses."""
    used: Int[Array, ""]
    """How many rows were needed at once so far."""

    def after(self, row: Inexact[Array, " row"], keep: Bool[Array, ""], problem: Problem) -> "Observed":
        """With the states at the times that a step which is kept has passed: up to its end; before its end if states are
        kicked, since the value at a kick is that behind it."""
        if not len(self.ts):
            return self
        interval, end = split_rows(row)[0], lax.stop_gradient(split_rows(row)[0][1])
        like = (problem.y0.dtype, problem.y0.size)
        ts = jnp.append(lax.stop_gradient(self.ts), jnp.inf)

        def due(state):
            t = read(ts, state[0])
            passed = (t <= end) if problem.kicks is None else (t < end) | ((t <= end) & (end >= problem.t1))
            return keep & passed

        def observe(state):
            size, ys = state
            is_due, place = due(state), jnp.minimum(size, len(self.ts) - 1)
            time = read(self.ts, place)
            value = problem.observed(time, evaluate(interval, split_rows(row)[1], time, *like))
            value = jnp.where(is_due, value, read(ys, place))
            return size + is_due.astype(jnp.int32), write(ys, place, value)

        size, ys = lax.while_loop(lambda state: unvmap_any(due(state)), observe, (self.size, self.ys))
        return eqx.tree_at(lambda o: (o.size, o.ys), self, (size, ys))


def rows_of(memory: Any, term: Any, dt0: Any, saveat: dfx.SaveAt, event: Any, controller: Any, kicked: bool) -> int | None:
    """The rows that `memory` stands for, a power of two; None for all."""
    if memory is None:
        return None
    lags = jax.tree.leaves(term.lags(), is_leaf=is_lag)
    subs = jax.tree.leaves(saveat.subs, is_leaf=lambda x: isinstance(x, dfx.SubSaveAt))
    for wrong, given, remedy in (
        (not are_planned(lags), "a delay that moves or overlaps (or is one of many)", "pass memory = None"),
        (any(lag.reads_slope for lag in lags), "a delayed derivative", "pass memory = None"),
        (saveat.dense, "SaveAt(dense=True)", "save at ts, or pass memory = None"),
        (any(sub.steps for sub in subs), "SaveAt(steps=...)", "save at ts, or pass memory = None"),
        (event is not None, "an event", "pass memory = None"),
        (kicked and any(sub.t0 for sub in subs), "SaveAt(t0=True) and impulses", "save at ts = [t0]"),
    ):
        if wrong:
            raise ValueError(f"got bounded memory with {given}, expected a past that is read once: {remedy}")
    if isinstance(memory, str) and memory == "auto":
        return _automatic(lags, dt0, isinstance(controller, dfx.AbstractAdaptiveStepSizeController))
    if not isinstance(memory, int | np.integer) or isinstance(memory, bool) or memory < 1:
        raise ValueError(f'memory = {memory!r}, expected a number of rows, "auto" or None: pass one of them')
    return _power(max(int(memory), LEAST))


def _automatic(lags: list, dt0: Any, adaptive: bool) -> int:
    delays = [concrete(lag.delay) for lag in lags]
    step = None if adaptive or dt0 is None else concrete(dt0)
    if any(delay is None for delay in delays) or (not adaptive and step is None):
        raise ValueError(
            'memory = "auto" with a delay or a step that is traced, expected numbers known in advance: pass memory = rows'
        )
    values = [float(delay) for delay in delays if delay is not None]
    if step is not None:
        return _power(max(LEAST, 2 * math.ceil(max(values) / float(step)) + LEAST))
    return _power(max(AUTOMATIC, math.ceil(PER_DELAY * max(values) / min(values))))


def _power(rows: int) -> int:
    return 2 ** math.ceil(math.log2(rows))
