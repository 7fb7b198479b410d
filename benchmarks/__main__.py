"""Compares lagrax with torchdde, JiTCDDE, diffrax and torchdiffeq, in time and in accuracy.

Everything is measured twice, in two processes: with JAX's default flags, and with the small loops of a program compiled as
single kernels (`lagrax.fuse_small_loops()`), which speeds up diffrax as well as lagrax. Times are medians of repetitions
that alternate between the two programs compared. A full run takes about a quarter of an hour and writes results.json and
results.md beside this file.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from . import machine, table
from .compare import COMPARISONS

HERE = Path(__file__).parent
TITLES = {"default": "JAX's default flags", "fused": "fused loops (lagrax.fuse_small_loops())"}


def main() -> None:
    options = _parse()
    names = options.only.split(",") if options.only else list(COMPARISONS)
    _check(names)
    about = machine.describe()
    rows = {flags: _measure(flags, names, options.quick) for flags in TITLES}
    cells = table.cells(rows["default"], rows["fused"])
    print("\nRatio (lagrax's time : the peer's), medians\n" + table.text(cells))
    if options.only or options.quick:
        print("\nPart of the comparisons, or few repetitions: results.json and results.md stay as they are.")
        return
    (HERE / "results.json").write_text(json.dumps({"machine": about, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    (HERE / "results.md").write_text(table.markdown(cells, rows["default"], machine.sentence(about)))
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


def _measure(flags: str, names: list[str], quick: bool) -> list[table.Json]:
    """Runs `benchmarks.run` in a process of its own, since XLA reads its flags once; it prints its progress."""
    print(f"\nWith {TITLES[flags]}:", flush=True)
    # On the CPU, where all the peers run, and without flags from outside.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.run", "--flags", flags, "--only", ",".join(names), "--json", str(file)]
        done = subprocess.run(command + ["--quick"] * quick, env=environment, cwd=HERE.parent, check=False)
        if done.returncode:
            sys.exit(f"The measurements with {TITLES[flags]} failed (see above).")
        return json.loads(file.read_text())


if __name__ == "__main__":
    main()
