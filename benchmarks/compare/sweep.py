"""A thousand Mackey–Glass trajectories, against JiTCDDE."""

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .. import mackey_glass as mg
from ..precision import double_precision
from ..row import Faster, Row, Side
from ..timing import interleave

LANES, TIMED, T1, MAX_STEPS = 1000, 20, 20.0, 320
CONTROLLER = {"pcoeff": 0.3, "icoeff": 0.4}
"""It looks at two errors, and has 26 of a lane's steps rejected where the default has 50."""

TOLERANCE = 2.5e-6
"""At which lagrax's error is still below JiTCDDE's at 1e-6: medians over all lanes 6e-5 and 8e-5."""


def sweep(repetitions: int) -> Iterator[Row]:
    """lagrax solves for 1,000 constant pasts in one `vmap`, JiTCDDE for one after the other.

    The first row leaves all lanes to one of JAX's devices, which runs one loop and keeps about one core busy; the second
    splits them over as many devices as there are cores, each with a loop of its own.
    JiTCDDE has no batches, and its time is proportional to their number: every 50th is timed and the time multiplied by 50.
    Errors at t = 20 are medians over those, since a few pasts are much more sensitive than the others.
    """
    from .. import with_jitcdde

    every = LANES // TIMED
    with double_precision():
        peer = with_jitcdde.compiled()
        pasts = jnp.linspace(0.2, 1.4, LANES)
        some = [float(past) for past in pasts[::every]]
        lanes = jax.vmap(lambda y0: mg.solve(y0, T1, tolerance=TOLERANCE, max_steps=MAX_STEPS, **CONTROLLER))
        same = jax.jit(jax.vmap(lambda y0: mg.solve(y0, T1, max_steps=MAX_STEPS)))
        cores = jax.make_mesh((jax.device_count(),), ("lanes",))
        over_cores = jax.shard_map(lanes, mesh=cores, in_specs=P("lanes"), out_specs=P("lanes"), check_vma=False)
        together, split = jax.jit(lanes), jax.jit(over_cores)
        placed = jax.device_put(pasts, NamedSharding(cores, P("lanes")))
        programs = {
            "one device": lambda: together(pasts),
            "split": lambda: split(placed),
            "same tolerance": lambda: same(pasts),
            "JiTCDDE": lambda: [peer(past, T1) for past in some],
        }
        times = interleave(programs, max(3, repetitions // 3))
        exact = np.asarray(jax.jit(jax.vmap(lambda y0: mg.reference(y0, T1)))(pasts[::every]))
        error = lambda found: float(np.median(np.abs(np.asarray(found) - exact)))
        scaled = f"JiTCDDE in a loop, of which {TIMED} are timed and scaled to {LANES}. Errors are medians over these."
        tolerances = (
            f"Tolerances {TOLERANCE:g} (with `pcoeff=0.3, icoeff=0.4`) and {mg.TOLERANCE:g}; with {mg.TOLERANCE:g} too, "
            + (f"and the default controller, one `vmap` takes {1e3 * float(np.median(times['same tolerance'])):.3g} ms.")
        )
        for name, what, note in (
            ("one device", "1,000 Mackey–Glass to t = 20", "lagrax in one `vmap`"),
            ("split", "the same, on both cores", f"The `vmap` under `jax.shard_map` over {jax.device_count()} devices"),
        ):
            solution = programs[name]()
            yield Row(
                name=f"sweep, {name}",
                what=what,
                peer="JiTCDDE",
                target=Faster(20),
                lagrax=Side(times[name], error(np.asarray(solution.ys)[::every, 0])),
                other=Side(times["JiTCDDE"] * every, error(programs["JiTCDDE"]())),
                quantity="y(20)",
                note=f"{note}, {scaled} {tolerances} lagrax keeps {_cores(programs[name]):.1f} cores busy, JiTCDDE one.",
                extra={"lagrax steps of the slowest": int(solution.stats["num_steps"].max())},
            )


def _cores(program) -> float:
    cpu, wall = time.process_time(), time.perf_counter()
    jax.block_until_ready(program())
    return (time.process_time() - cpu) / (time.perf_counter() - wall)
