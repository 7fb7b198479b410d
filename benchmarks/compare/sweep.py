"""A thousand Mackey–Glass trajectories, against JiTCDDE."""

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from .. import mackey_glass as mg
from ..precision import double_precision
from ..row import Faster, Row, Side
from ..timing import interleave

LANES, TIMED, T1, MAX_STEPS = 1000, 20, 20.0, 320


def sweep(repetitions: int) -> Iterator[Row]:
    """lagrax solves for 1,000 constant pasts in one `vmap`, JiTCDDE for one after the other.

    JiTCDDE has no batches, and its time is proportional to their number: every 50th is timed and the time multiplied by 50.
    Errors at t = 20 are medians over those, since a few pasts are much more sensitive than the others.
    """
    from .. import with_jitcdde

    every = LANES // TIMED
    with double_precision():
        peer = with_jitcdde.compiled()
        pasts = jnp.linspace(0.2, 1.4, LANES)
        some = [float(past) for past in pasts[::every]]
        compiled = jax.jit(jax.vmap(lambda y0: mg.solve(y0, T1, max_steps=MAX_STEPS)))
        programs = {"lagrax": lambda: compiled(pasts), "JiTCDDE": lambda: [peer(past, T1) for past in some]}
        times = interleave(programs, max(3, repetitions // 3))
        solution = compiled(pasts)
        exact = np.asarray(jax.jit(jax.vmap(lambda y0: mg.reference(y0, T1)))(pasts[::every]))
        error = lambda found: float(np.median(np.abs(np.asarray(found) - exact)))
        yield Row(
            name="sweep",
            what="1,000 Mackey–Glass to t = 20",
            peer="JiTCDDE",
            target=Faster(20),
            lagrax=Side(times["lagrax"], error(solution.ys[::every, 0])),
            other=Side(times["JiTCDDE"] * every, error(programs["JiTCDDE"]())),
            quantity="y(20)",
            note=f"lagrax in one `vmap`, JiTCDDE in a loop, of which {TIMED} are timed and scaled to {LANES}. "
            "Errors are medians over these. "
            f"lagrax keeps {_cores(programs['lagrax']):.1f} cores busy, JiTCDDE one.",
            extra={"lagrax steps of the slowest": int(solution.stats["num_steps"].max())},
        )


def _cores(program) -> float:
    cpu, wall = time.process_time(), time.perf_counter()
    jax.block_until_ready(program())
    return (time.process_time() - cpu) / (time.perf_counter() - wall)
