"""One Mackey–Glass trajectory, against JiTCDDE."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from .. import mackey_glass as mg
from ..precision import double_precision
from ..row import Faster, Row, Side
from ..timing import interleave

T1, CHECKED_AT = 100.0, 20.0


def single(repetitions: int) -> Iterator[Row]:
    """Both solve to t = 100 in double precision at 1e-6, compiled.

    The equation is chaotic: by t = 100 any two solvers have parted. Errors are therefore taken at t = 20.
    """
    from .. import with_jitcdde

    with double_precision():
        peer = with_jitcdde.compiled()
        compiled = jax.jit(mg.solve)
        solve = lambda t1: compiled(jnp.asarray(mg.PAST), jnp.asarray(t1))
        times = interleave({"lagrax": lambda: solve(T1), "JiTCDDE": lambda: peer(mg.PAST, T1)}, repetitions)
        exact = float(mg.reference(mg.PAST, CHECKED_AT))
        yield Row(
            name="single",
            what="Mackey–Glass to t = 100",
            peer="JiTCDDE",
            target=Faster(3),
            lagrax=Side(times["lagrax"], abs(float(solve(CHECKED_AT).ys[0]) - exact)),
            other=Side(times["JiTCDDE"], abs(peer(mg.PAST, CHECKED_AT) - exact)),
            quantity="y(20)",
            note="The same tolerance for both, 1e-6; lagrax takes fifth order steps, JiTCDDE third order ones, in C.",
            extra={"lagrax steps": int(solve(T1).stats["num_steps"])},
        )
