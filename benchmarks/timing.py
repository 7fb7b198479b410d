"""Timing several programs side by side on a machine that is not quiet."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

PAUSE = 0.3
"""Seconds between repetitions longer than these: threads of the program before (OpenMP in PyTorch) go on waiting in a
busy loop for 0.2 s, which would be charged to the next one."""

BLOCK = 0.03
"""A repetition lasts at least this many seconds: short programs are called many times in it, and timed warm."""


def interleave(programs: Mapping[Any, Callable[[], Any]], repetitions: int) -> dict[Any, np.ndarray]:
    """Seconds per call of each program, one entry per repetition.

    Each program runs once to compile and thrice to see how long it takes. Then come the repetitions: one of the first
    program, one of the second, …, one of the first again. A repetition lasts about as long for all of them, with as many
    calls as that takes: were those of the faster program shorter, it would more often slip through between two interruptions
    by other processes. So load hits all alike, and ratios of the medians hold where the times themselves drift.
    """
    once = {}
    for name, program in programs.items():
        _block(program, 1)
        once[name] = min(_block(program, 1) for _ in range(3))
    block = max(BLOCK, *once.values())
    calls = {name: max(1, round(block / once[name])) for name in programs}
    seconds: dict[Any, list[float]] = {name: [] for name in programs}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repetitions):
            for name, program in programs.items():
                if block > PAUSE:
                    time.sleep(PAUSE)
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
