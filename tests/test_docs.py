"""Every Python block of the documentation runs, page by page, from top to bottom; those with a file name on their own."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'^```python title="(\S+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
LONG = ("distributed-delays", "fit", "models", "training")
"""Pages that take 25 seconds and more; all that is on them has tests of its own."""
FILES = {f"{page.name}:{name}": text for page in PAGES for name, text in FILE.findall(page.read_text())}


def run(text, folder):
    """In a process of its own, as a reader would: default precision, an empty folder. Compiled as tests are."""
    script = folder / "page.py"
    script.write_text(text)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    environment = {**os.environ, **cache, "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def with_code():
    pages = [page for page in PAGES if BLOCK.search(page.read_text())]
    return [pytest.param(page, id=page.name, marks=pytest.mark.slow if page.stem in LONG else ()) for page in pages]


@pytest.mark.parametrize("page", with_code())
def test_page(page, tmp_path):
    run("\n".join(BLOCK.findall(page.read_text())), tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_file(name, tmp_path):
    run(FILES[name], tmp_path)
