"""Builds the wheel and the sdist, and tries them as strangers do: in new environments, elsewhere, without the checkout.

`make release` runs it after lint, tests and docs. Nothing is published: what is in `dist/` at the end has been tried.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"

# y(2) = 1 - 2 + (2 - τ)² / 2 for y' = -y(t - τ) and a past of 1, and its derivative with respect to τ.
SOLVE = """
import diffrax as dfx, jax, lagrax as lx, pathlib, sys
solve = lambda tau: lx.ddesolve(lx.DelayTerm(lambda t, y, d, args: -d, tau), dfx.Tsit5(), 0.0, 2.0, None, 1.0).ys[0]
value, slope = jax.value_and_grad(solve)(1.0)
assert abs(value + 0.5) < 1e-5 and abs(slope + 1) < 1e-5, (value, slope)
place = pathlib.Path(lx.__file__).resolve()
assert pathlib.Path(sys.prefix).resolve() in place.parents, f"{place} is not the installed package"
assert (place.parent / "py.typed").exists() and lx.__version__ == sys.argv[1], lx.__version__
print("y(2) =", value, " dy(2)/dtau =", slope)
"""


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def built() -> tuple[Path, Path]:
    """(The wheel, the sdist), new."""
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", DIST, ROOT], check=True, stdout=subprocess.DEVNULL)
    return next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))


def check_contents(wheel: Path, sdist: Path) -> str:
    """The version, if both hold what they should: every module of the checkout, and the sdist what tests need too."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "lagrax").rglob("*.py")}
    missing = modules | {"lagrax/py.typed"}
    missing -= packed
    strange = {name for name in packed if not name.startswith(("lagrax/", "lagrax-"))}
    if missing or strange:
        sys.exit(f"{wheel.name} lacks {sorted(missing)} and has {sorted(strange)}, expected the package alone and whole")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "Makefile", "pyproject.toml", "tests/conftest.py"}
    if wanted - inside:
        sys.exit(f"{sdist.name} lacks {sorted(wanted - inside)}, expected what the checkout has")
    return wheel.name.split("-")[1]


class Elsewhere:
    """A new environment and an empty folder, in which nothing of the checkout is found."""

    def __init__(self, folder: Path):
        self.bin, self.work = folder / "venv" / "bin", folder / "work"
        self.work.mkdir(parents=True)
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)

    def run(self, program: str, *arguments: str) -> str:
        command = [self.bin / program, *arguments]
        done = subprocess.run(command, cwd=self.work, env=self.environ, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{program} {' '.join(arguments)[:80]} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def install(self, what: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what)


def try_core(place: Elsewhere, what: Path, version: str) -> None:
    """Without extras: a solve and its gradient, and the command line's help."""
    say(f"Trying {what.name} alone …")
    place.install(str(what))
    print(place.run("python", "-c", SOLVE, version).strip())
    if version not in place.run("lagrax", "--version") or "reproduce" not in place.run("lagrax", "--help"):
        sys.exit("`lagrax --version` or `lagrax --help` does not say what it should")


def try_training(place: Elsewhere, wheel: Path) -> None:
    say("Trying the experiments …")
    place.install(f"{wheel}[train]")
    place.run("lagrax", "list")
    place.run("lagrax", "reproduce", "spiral", "--preset", "smoke")
    if not list((place.work / "runs").rglob("report.html")):
        sys.exit("`lagrax reproduce spiral --preset smoke` left no report.html in runs/")


def main() -> int:
    say("Building …")
    wheel, sdist = built()
    version = check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        place = Elsewhere(Path(folder) / "wheel")
        try_core(place, wheel, version)
        try_training(place, wheel)
        try_core(Elsewhere(Path(folder) / "sdist"), sdist, version)
    say(f"{wheel.relative_to(ROOT)} and {sdist.relative_to(ROOT)} are fit to be published.")
    if f"## [{version}] – unreleased" in (ROOT / "CHANGELOG.md").read_text():
        print(f"CHANGELOG.md calls {version} unreleased: write the date there first.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
