"""`memory` of a solve: how many rows of the past are kept."""

import math
from typing import Any

import diffrax as dfx
import jax
import numpy as np

from ._check import concrete
from ._lag import are_planned, is_lag

LEAST = 16
"""Rows that every ring has: twice the window that a lookup searches."""

AUTOMATIC, PER_DELAY = 1024, 256
"""Rows that "auto" takes at least with adaptive steps, and for each length of the smallest delay in the largest."""


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
