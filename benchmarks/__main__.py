"""Compares lagrax with torchdde, JiTCDDE, tvboptim, diffrax and torchdiffeq, in time and in accuracy.

Times are medians of repetitions that alternate between the two programs compared. A full run takes a few minutes and writes
results.json and results.md beside this file.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import jax

from . import dispatch, machine, table
from .compare import COMPARISONS
from .row import Row

HERE = Path(__file__).parent
REPETITIONS, QUICK = 20, 6


def main() -> None:
    options = _parse()
    names = options.only.split(",") if options.only else list(COMPARISONS)
    _check(names)
    about = machine.describe()
    # All the peers run on the CPU, which JAX sees as one device unless told otherwise; all programs but one use the first.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    dispatch.at_once()
    # Compile times are of a compiler that has not seen the program before.
    jax.config.update("jax_enable_compilation_cache", False)
    rows = [row.as_json() for row in _measure(names, QUICK if options.quick else REPETITIONS)]
    print("\nRatio (lagrax's time : the peer's), medians\n" + table.text(table.cells(rows)))
    if options.only or options.quick:
        print("\nPart of the comparisons, or few repetitions: results.json and results.md stay as they are.")
        return
    (HERE / "results.json").write_text(json.dumps({"machine": about, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    (HERE / "results.md").write_text(table.markdown(rows, machine.sentence(about)))
    print("\nWritten: benchmarks/results.json, benchmarks/results.md")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="NAME,…", help="some of: " + ", ".join(COMPARISONS))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, for a first look")
    return parser.parse_args()


def _check(names: list[str]) -> None:
    """Leaves with one sentence if a name is unknown or a peer is missing."""
    unknown = [name for name in names if name not in COMPARISONS]
    if unknown:
        sys.exit(f"There is no comparison {', '.join(unknown)}: expected some of {', '.join(COMPARISONS)}.")
    needed = dict.fromkeys(package for name in names for package in COMPARISONS[name].packages)
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        sys.exit(f"Cannot import {' and '.join(missing)}: `make bench` installs the peers and runs this.")


def _measure(names: list[str], repetitions: int) -> list[Row]:
    """The rows of the named comparisons, each printed as it is finished."""
    rows = []
    for name in names:
        start = time.perf_counter()
        for row in COMPARISONS[name].measure(repetitions):
            rows.append(row)
            cell, taken = table.ratio_cell(row.as_json()), f"[{time.perf_counter() - start:.0f} s]"
            print(f"  {row.what:31} {cell:42} target {row.target.describe():15} {taken}", flush=True)
            start = time.perf_counter()
    return rows


if __name__ == "__main__":
    main()
