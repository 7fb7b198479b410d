"""Measures in this process, under one choice of JAX's flags. `python -m benchmarks` runs this once per choice."""

import argparse
import json
import os
import time
from pathlib import Path

import jax

import lagrax

from .compare import COMPARISONS
from .row import Row
from .table import ratio_cell

REPETITIONS, QUICK = 20, 6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--flags", choices=("default", "fused"), default="default", help="fused: lagrax.fuse_small_loops()")
    parser.add_argument("--only", default=",".join(COMPARISONS), help="names separated by commas (default: all of them)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", type=Path, help="file for the rows")
    options = parser.parse_args()
    if options.flags == "fused":
        lagrax.fuse_small_loops()
    # JAX sees the CPU as one device unless told otherwise; all programs but one use the first only.
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    # Compile times are of a compiler that has not seen the program before.
    jax.config.update("jax_enable_compilation_cache", False)
    rows = measure(options.only.split(","), QUICK if options.quick else REPETITIONS)
    if options.json:
        options.json.write_text(json.dumps([row.as_json() for row in rows]))


def measure(names: list[str], repetitions: int) -> list[Row]:
    """The rows of the named comparisons, each printed as it is finished."""
    rows = []
    for name in names:
        start = time.perf_counter()
        for row in COMPARISONS[name].measure(repetitions):
            rows.append(row)
            taken = f"[{time.perf_counter() - start:.0f} s]"
            print(f"  {row.what:31} {ratio_cell(row.as_json()):42} target {row.target.describe():15} {taken}", flush=True)
            start = time.perf_counter()
    return rows


if __name__ == "__main__":
    main()
