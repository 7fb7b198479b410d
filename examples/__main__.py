"""Runs the examples of the gallery, and puts their pictures and what they print into the docs: `make gallery`.

python -m examples               all of them
python -m examples laser lynx    some
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIGURES = {
    "harvest": "harvest",
    "lynx": "lynx",
    "mackey_glass": "mackey-glass",
    "cells": "cells",
    "epidemic": "epidemic",
    "gamma_delay": "gamma-delay",
    "doses": "patients",
    "laser": "laser",
    "network": "network",
    "reaction_diffusion": "reaction-diffusion",
    "control": "control",
    "oregonator": "oregonator",
    "demo": "demo",
    "state_delay": "state-delay",
    "posterior": "posterior",
    "aliases": "aliases",
}
"""Module and figure."""


def run(name: str, folder: Path) -> str:
    """What an example prints. Its figure is in `folder / "out"` then."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def main(names: list[str]) -> None:
    unknown = set(names) - set(FIGURES)
    if unknown:
        sys.exit(f"there is no example {', '.join(sorted(unknown))}: expected some of {', '.join(FIGURES)}")
    for name in names or FIGURES:
        print(f"{name} …", end=" ", flush=True)
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            printed = run(name, Path(folder))
            shutil.copy(Path(folder) / "out" / f"{FIGURES[name]}.png", ROOT / "docs" / "img")
        (ROOT / "docs" / "gallery" / "printed").mkdir(exist_ok=True)
        (ROOT / "docs" / "gallery" / "printed" / f"{name}.txt").write_text(printed)
        print(f"{time.perf_counter() - start:.0f} s", flush=True)
    print(f"Pictures: {ROOT / 'docs' / 'img'}")


if __name__ == "__main__":
    main(sys.argv[1:])
