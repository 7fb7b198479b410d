"""What a release needs: one version everywhere, bounds that are tried as they are written, models of earlier versions."""

import os
import pathlib
import re
import runpy
import subprocess
import sys
import tomllib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax
import lagrax.nn as lxn

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version():
    """The package says it, hatch reads it there; the citation and the top of the changelog are written by hand."""
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited and newest and cited[1] == newest[1] == lagrax.__version__


def test_the_oldest_packages_are_the_lower_bounds():
    oldest = runpy.run_path(str(ROOT / "scripts" / "matrix.py"))["oldest"](PROJECT)
    needs = [need for need in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["train"] if ">=" in need]
    assert len(needs) >= 8 and all(">=" in need for need in PROJECT["dependencies"])
    assert {"jax==0.9", "equinox==0.13.3", "diffrax==0.7.1", "optax==0.2.8"} <= set(oldest)
    assert {re.sub(r",.*", "", need).replace(">=", "==") for need in needs} <= set(oldest)


def test_the_workflow_runs_the_matrix():
    cells = runpy.run_path(str(ROOT / "scripts" / "matrix.py"))["CELLS"]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.search(r"^ *cell: \[(.*)\]$", workflow, re.MULTILINE)[1].split(", ") == list(cells)
    tried = {cell.partition("-")[0] for cell in cells}
    assert {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python ::" in line} == tried


def test_a_model_of_version_0_1_0():
    """A file written by that version: fields that are gone since, fields that came since, every kind of array."""
    found = lagrax.load(ROOT / "tests" / "data" / "model-0.1.0.lagrax")
    model, fields, arrays = found["model"], found["fields"], found["arrays"]
    assert type(model) is lxn.NeuralDDE and type(model.solver) is dfx.Tsit5
    weight = np.asarray(model.field.layers[1].weight)
    assert weight.dtype == np.float32 and weight.tobytes().hex() == "c86cba3d9314eabece9ccabe482fa5be4a5f3cbe0458053e"
    with jax.numpy_dtype_promotion("standard"):  # its delay has double precision
        assert np.allclose(model(jnp.ones(2, jnp.float32)), [0.7284646, 0.9341810], rtol=1e-3)  # the tolerance of its steps
    assert sum(leaf.size for leaf in jax.tree.leaves(fields)) > 0
    assert arrays["complex"] == 1 + 2j and arrays["complex"].dtype == complex
    assert arrays["half"].dtype == jnp.bfloat16 and arrays["empty"].shape == (2, 0) and arrays["weak"].weak_type
    assert np.array_equal(arrays["turned"], np.arange(6.0).reshape(2, 3).T)
    assert jnp.array_equal(jax.random.key_data(arrays["key"]), jax.random.key_data(jax.random.key(3)))


@pytest.mark.parametrize("words, code, said", [(["list"], 0, "SVHN"), (["reproduce", "images"], 1, "lagrax[images]")])
def test_without_the_packages_of_an_extra(words, code, said, tmp_path):
    """What cannot be run can still be described."""
    program = f"import sys; sys.modules['sklearn'] = None; from lagrax.cli import main; sys.exit(main({words!r}))"
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == code and said in done.stdout + done.stderr and not list(tmp_path.iterdir())
