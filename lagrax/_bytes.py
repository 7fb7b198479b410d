"""How much memory a solve takes, known before it is allocated, and whether there is that much.

Counted are the buffers (the past, the record of a backward pass, cotangents, snapshots), what a step looks up and computes
with, and what is saved. What the vector field makes inside itself is not known here.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._integrate import integrate
from ._planned import integrate_bounded
from ._problem import Problem
from ._setup import UNLIMITED, Setup

CHECKED = os.environ.get("LAGRAX_CHECK_MEMORY") != "0"
"""Whether solves that cannot fit are refused. (A program that is compiled for another machine may well fit there.)"""

MOST = 8
"""Times the past that a solve with its gradient takes at most, roughly: less than that need not be counted."""


class Memory(eqx.Module):
    """Bytes that a solve takes: alone (`solve`), and with its gradient by `DiscreteAdjoint` (`gradient`, None if it cannot
    have one because `max_steps` is None). The past has `rows` rows of `row` bytes."""

    solve: int = eqx.field(static=True)
    gradient: int | None = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    row: int = eqx.field(static=True)

    def __str__(self) -> str:
        gradient = "" if self.gradient is None else f", with its gradient {_readable(self.gradient)}"
        return f"{_readable(self.solve)}{gradient} (the past: {self.rows} rows of {_readable(self.row)})"


def memory_needed(problem: Problem, setup: Setup, ts: Float[Array, " times"], saved: int) -> Memory:
    """Of a solve that observes at `ts` and returns `saved` states."""
    rows, row = _past(problem, setup)
    solve = _solve(problem, setup, ts, saved)
    gradient = None if setup.max_steps == UNLIMITED else _gradient(problem, setup, ts, saved)
    return Memory(solve, gradient, rows, row)


def check_fits(problem: Problem, setup: Setup, ts: Float[Array, " times"], *, gradient: bool) -> None:
    """Raises if the solve, or the one with its gradient, takes more memory than there is."""
    rows, row = _past(problem, setup)
    there = available() if CHECKED else None
    most = MOST * (setup.room if gradient and setup.memory is not None else rows) * row
    if there is None or most < there:
        return
    needed = (_gradient if gradient else _solve)(problem, setup, ts, len(ts))
    if needed > there:
        kind = "a gradient" if gradient else "a solve"
        raise ValueError(
            f"got {kind} that takes {_readable(needed)} (the past: {rows} rows of {_readable(row)}), expected at most the "
            f"{_readable(there)} that are free: pass a smaller max_steps, memory = rows, or a state in float32"
        )


def available() -> int | None:
    """Bytes that are free, on all devices of the default kind; None if nobody knows."""
    default: Any = getattr(jax.config, "jax_default_device", None)
    kind = default if isinstance(default, str) else getattr(default, "platform", None)
    devices = jax.local_devices(backend=kind)
    if devices[0].platform == "cpu":
        return _host()
    stats = [device.memory_stats() or {} for device in devices]
    if any("bytes_limit" not in stat for stat in stats):
        return None
    return sum(stat["bytes_limit"] - stat.get("bytes_in_use", 0) for stat in stats)


def _host() -> int | None:
    """What this machine has free, or its container."""
    found = [free for free in (_free_of_machine(), _free_of_container()) if free is not None]
    return min(found) if found else None


def _free_of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _free_of_container() -> int | None:
    """What a control group leaves, files that it holds in memory not counted."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (folder / "memory.max").read_text().strip(), int((folder / "memory.current").read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        files = sum(int(line.split()[1]) for line in lines if line.split()[0] in ("inactive_file", "active_file"))
        return None if limit == "max" else max(int(limit) - used + files, 0)
    except (OSError, ValueError, IndexError):
        return None


def _past(problem: Problem, setup: Setup) -> tuple[int, int]:
    """(How many rows, the bytes of one)."""
    width = 2 + (len(setup.method.dense) + 1) * problem.y0.size
    dtype = jnp.promote_types(problem.t0.dtype, problem.y0.dtype)
    return (setup.max_steps if setup.memory is None else setup.memory), width * dtype.itemsize


def _solve(problem: Problem, setup: Setup, ts, saved: int) -> int:
    held, rest = _held(problem, setup, ts), _step(problem, setup)
    if setup.memory is None:
        # What is observed is read when the steps are done.
        rest = max(rest, len(ts) * _past(problem, setup)[1])
    if problem.network is not None:
        # XLA copies its past once, before the first step; and what is observed is read from a past laid out as others are.
        held += setup.max_steps * _past(problem, setup)[1]
    return held + rest + saved * problem.y0.nbytes


def _gradient(problem: Problem, setup: Setup, ts, saved: int) -> int:
    recording = dataclasses.replace(setup, keep=dataclasses.replace(setup.keep, record=True))
    held, row = _held(problem, recording, ts), _past(problem, setup)[1]
    again = setup.max_steps + len(ts)
    if setup.memory is not None:
        # A segment behind its ring: its rows, their cotangents, and those of what was observed.
        again = (setup.segment + setup.memory) * (3 if len(ts) else 2)
    return held + again * row + _step_back(problem, setup) + saved * problem.y0.nbytes


def _held(problem: Problem, setup: Setup, ts) -> int:
    """Bytes of the buffers that a solve fills."""
    if setup.memory is None:
        trajectory = eqx.filter_eval_shape(integrate, problem, setup)
        return _bytes((trajectory.past, trajectory.record, trajectory.sources))
    return _bytes(eqx.filter_eval_shape(integrate_bounded, problem, setup, ts))


def _lookups(problem: Problem, setup: Setup) -> int:
    """How many rows a step reads. (A network reads components, not rows.)"""
    delays = 0 if problem.network is not None else len(problem.lags) or problem.delays.size
    return len(setup.method.nodes) * delays


def _step(problem: Problem, setup: Setup) -> int:
    """What a step computes with: rows and states looked up, stages."""
    lookups, state = _lookups(problem, setup), problem.y0.nbytes
    return lookups * (_past(problem, setup)[1] + state) + setup.method.stages * state


def _step_back(problem: Problem, setup: Setup) -> int:
    """The same for its transpose, as XLA arranges it: the rows four times, the states twice, and five for each stage."""
    lookups, state = _lookups(problem, setup), problem.y0.nbytes
    return lookups * (4 * _past(problem, setup)[1] + 2 * state) + 5 * setup.method.stages * state


def _bytes(tree: PyTree) -> int:
    leaves: list[Any] = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.ShapeDtypeStruct)]
    return sum(x.size * np.dtype(x.dtype).itemsize for x in leaves if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def _readable(size: int) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e3:.3g} kB"
