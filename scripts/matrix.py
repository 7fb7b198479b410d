"""The quick tests with every Python at hand, and with the oldest and the newest packages that pyproject.toml allows.

`make matrix`, or `python scripts/matrix.py 3.11-oldest 3.13-newest` for some of it. Environments are kept in `.matrix/`, and
made anew when what is needed has changed. Ends with a table and 1 if anything failed; a Python that is missing is left out.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The oldest packages have no wheels for newer Pythons than the oldest.
CELLS = ("3.11-oldest", *(f"{python}-newest" for python in PYTHONS))
EXTRAS = ("train", "images")
SHOWN = ("jax", "equinox", "diffrax", "optax", "scipy")
# Some hundred tests of what users call first: mistakes, orders of convergence, gradients, moving delays, files, training.
TESTS = (
    "tests/test_errors.py",
    "tests/test_accuracy.py",
    "tests/test_stepping.py",
    "tests/test_lag_kind.py",
    "tests/test_nn_delays.py",
    "tests/test_train_fit.py",
    "tests/test_persist.py",
)


def oldest(project: dict) -> list[str]:
    """The lower bound of every package that lagrax and its extras for users need, as `name==version`."""
    needs = [*project["dependencies"], *(need for extra in EXTRAS for need in project["optional-dependencies"][extra])]
    found = [re.match(r"([\w-]+)>=([\d.]+)", need) for need in needs if not need.startswith("lagrax[")]
    return [f"{match[1]}=={match[2]}" for match in found if match]


def interpreter(python: str) -> str | None:
    """A Python of this version that can make environments: from PATH or of pyenv."""
    found = [shutil.which(f"python{python}"), *sorted(map(str, Path.home().glob(f".pyenv/versions/{python}.*/bin/python")))]
    makes = lambda path: not subprocess.run([path, "-c", "import ensurepip, venv"], capture_output=True).returncode
    return next((path for path in found if path and makes(path)), None)


def environment(cell: str, path: str) -> Path:
    """The Python of an environment with lagrax and what tests need, made if it is not there as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = repr((project["dependencies"], project["optional-dependencies"]["dev"], oldest(project)))
    folder, wanted = FOLDER / cell, hashlib.sha256(needs.encode()).hexdigest()
    python, stamp = folder / "bin" / "python", folder / "made-of"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"{cell}: installing …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([path, "-m", "venv", folder], check=True)
        options = []
        if cell.endswith("-oldest"):
            bounds = folder / "oldest.txt"
            bounds.write_text("\n".join(oldest(project)) + "\n")
            options = ["--constraint", bounds]
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options]
        subprocess.run([*install, "--editable", f"{ROOT}[dev]"], check=True)
        stamp.write_text(wanted)
    return python


def versions(python: Path) -> list[str]:
    code = f"from importlib.metadata import version; print(*map(version, {SHOWN!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def run(cell: str, asked: bool) -> tuple[str, bool]:
    """(A row of the table, whether it is as it should be). Only a Python that was asked for by name has to be there."""
    path = interpreter(cell.partition("-")[0])
    if path is None:
        return f"| {cell.partition('-')[0]} | | | not at hand | |", not asked
    try:
        python = environment(cell, path)
    except subprocess.CalledProcessError as error:
        return f"| {cell} | | | could not be installed ({error.returncode}) | **failed** |", False
    print(f"{cell}: testing …", flush=True)
    options = ["-p", "no:cacheprovider", *os.environ.get("MATRIX_OPTIONS", "").split()]
    tests = subprocess.run([python, "-m", "pytest", *options, *TESTS], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(tests.stdout, flush=True)
    jax, equinox, diffrax, optax, scipy = versions(python)
    exact = subprocess.run(
        [python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True
    )
    summary = (
        tests.stdout.strip().splitlines()[-1].strip("= ").partition(" in ")[0] if tests.stdout.strip() else "nothing ran"
    )
    outcome = "passed" if tests.returncode == 0 else "**failed**"
    packages = f"{equinox}, {diffrax}, {optax}, {scipy}"
    return f"| {exact.stdout.strip()} | {jax} | {packages} | {summary} | {outcome} |", tests.returncode == 0


def main(cells: list[str]) -> int:
    unknown = [cell for cell in cells if cell not in CELLS]
    if unknown:
        print(f"got {unknown[0]!r}, expected one of {', '.join(CELLS)}", file=sys.stderr)
        return 2
    rows = [run(cell, bool(cells)) for cell in cells or CELLS]
    print("| Python | JAX | equinox, diffrax, optax, scipy | tests | |\n|---|---|---|---|---|")
    print(*(row for row, _ in rows), sep="\n")
    return 0 if all(good for _, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
