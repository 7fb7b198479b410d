"""Every Python block of the documentation runs, page by page, from top to bottom."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_page(page, tmp_path):
    """Each page in a process of its own, as a reader would: default precision, an empty folder. Compiled as tests are."""
    script = tmp_path / "page.py"
    script.write_text("\n".join(BLOCK.findall(page.read_text())))
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    environment = {**os.environ, **cache, "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
