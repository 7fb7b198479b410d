"""How JAX hands a program to the CPU: to a thread of its own, as it does by default, or at once, in the caller's thread.

To wake that thread takes 10 to 70 µs, as much as a small solve, and changes with all else that the machine does. JiTCDDE and
PyTorch compute in the caller's thread. So the benchmarks have JAX do that too, by its documented setting, for lagrax and for
diffrax; beside the smallest solves they say what these take by default.
"""

import importlib
import json
import subprocess
import sys
from typing import Any

import jax
import numpy as np

from .precision import double_precision
from .table import seconds
from .timing import interleave

REPETITIONS = 10


def at_once() -> None:
    """Has JAX compute in the caller's thread. To be called before anything is computed."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def by_default(program: str, *arguments: Any) -> str:
    """A sentence with the time that a program takes in a process with JAX's own settings.

    `program` is "module:function", within this package, of a function that returns the program to be timed.
    """
    words = [sys.executable, "-m", f"{__package__}.dispatch", program, json.dumps(arguments)]
    taken = float(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return f"With JAX's default dispatch, to a thread of its own, lagrax takes {seconds(taken)}."


def main() -> None:
    program, arguments = sys.argv[1:]
    module, name = program.split(":")
    jax.config.update("jax_platforms", "cpu")
    with double_precision():
        run = getattr(importlib.import_module(f".{module}", __package__), name)(*json.loads(arguments))
        print(np.median(interleave({name: run}, REPETITIONS)[name]))


if __name__ == "__main__":
    main()
