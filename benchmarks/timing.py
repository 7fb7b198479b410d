"""Timing several programs side by side on a machine that is not quiet."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

BLOCK = 0.01
"""A repetition repeats its program for about this many seconds, so that short programs are timed warm and the clock's own
cost does not show."""


def interleave(programs: Mapping[str, Callable[[], Any]], repetitions: int) -> dict[str, np.ndarray]:
    """Seconds per call of each program, one entry per repetition.

    Each program runs once to compile and once to see how long it takes. Then come the repetitions: one of the first
    program, one of the second, …, one of the first again. Load from elsewhere hits all of them alike, so ratios of the
    medians hold where the times themselves drift.
    """
    calls = {}
    for name, program in programs.items():
        _block(program, 1)
        calls[name] = max(1, round(BLOCK / _block(program, 1)))
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repetitions):
            for name, program in programs.items():
                seconds[name].append(_block(program, calls[name]) / calls[name])
    finally:
        if collecting:
            gc.enable()
    return {name: np.array(values) for name, values in seconds.items()}


def _block(program: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(program())
    return time.perf_counter() - start
