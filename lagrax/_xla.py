"""One switch of XLA's CPU compiler that small delay equations gain most from."""

import os

from ._compat import backends_are_initialized

_OPTION = "xla_cpu_small_while_loop_byte_threshold"


def fuse_small_loops(limit: int = 2**20) -> None:
    """Lets XLA compile each loop that touches less than `limit` bytes as a single CPU kernel.

    XLA runs the body of a loop as a list of kernels, at 30 to 100 ns each: for an equation of a few components that is
    most of the time. Loops it takes to be small it compiles whole instead, but by default those touch less than 1 kB,
    which no solver does. Raising the limit makes small problems several times as fast, in lagrax and in diffrax
    (`docs/speed.md` has the measurements); loops over large arrays are left as they are.

    Call it before JAX does anything: it sets the environment variable `XLA_FLAGS`, which JAX reads once. Has no effect on
    other backends than the CPU.
    """
    if backends_are_initialized():
        raise RuntimeError(
            "JAX has already started, expected it untouched: call lagrax.fuse_small_loops() right after the imports"
        )
    flags = os.environ.get("XLA_FLAGS", "")
    if _OPTION not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={_OPTION}={limit}".strip()
