"""The gallery: each example has a page, a picture and checks of its own numbers, which are run."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from examples.__main__ import FIGURES

ROOT = pathlib.Path(__file__).parent.parent
HELPERS = {"__init__", "__main__", "looks"}
FAST = ("laser",)


@pytest.mark.parametrize("name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in FIGURES])
def test_example(name, tmp_path):
    """Runs from an empty folder, passes its own checks and leaves its picture."""
    if name == "posterior":
        pytest.importorskip("numpyro", reason="this example samples with NumPyro: pip install -e '.[gallery]'")
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    command = [sys.executable, "-m", f"examples.{name}"]
    environment = {**os.environ, **cache, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out" / f"{FIGURES[name]}.png").stat().st_size > 10_000


def test_every_example_is_in_the_gallery():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} - HELPERS == set(FIGURES)
    index, nav = (ROOT / "docs" / "gallery" / "index.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    for name, figure in FIGURES.items():
        page = name.replace("_", "-")
        text = (ROOT / "docs" / "gallery" / f"{page}.md").read_text()
        assert f"img/{figure}.png" in text and f'--8<-- "examples/{name}.py"' in text
        assert f'href="{page}.html"><img src="../img/{figure}.png"' in index and f"gallery/{page}.md" in nav
        assert (ROOT / "docs" / "img" / f"{figure}.png").exists()
        assert (ROOT / "docs" / "gallery" / "printed" / f"{name}.txt").exists()


def test_every_example_asserts_something():
    """Numbers that are only printed are checked by nobody."""
    silent = [name for name in FIGURES if not re.search(r"^ +assert ", (ROOT / "examples" / f"{name}.py").read_text(), re.M)]
    assert not silent
