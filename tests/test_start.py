"""What is imported when: JAX for computing, and not for a package that is named or a command that only prints."""

import subprocess
import sys

import pytest

import lagrax
from lagrax import _choices, _public, experiments
from lagrax.runner import _configuration


def python(*words, **options):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(
    "code, words",
    [
        (0, ["--help"]),
        (0, ["--version"]),
        (0, ["reproduce", "--help"]),
        (0, ["list", "--help"]),
        (0, ["report", "--help"]),
        (0, ["completion", "bash"]),
        (0, ["completion", "zsh"]),
        (2, []),
        (2, ["--nonsense"]),
        (2, ["reprodce", "spiral"]),
        (2, ["reproduce"]),
        (2, ["reproduce", "spirl"]),
        (2, ["reproduce", "spiral", "--preset", "smok"]),
        (2, ["reproduce", "spiral", "--solver", "euler"]),
        (2, ["reproduce", "spiral", "--set", "iterations"]),
        (2, ["reproduce", "spiral", "--seeds", "two"]),
    ],
)
def test_help_and_mistakes_need_no_jax(code, words):
    """All of them in a process that cannot import JAX, or anything that needs it."""
    heavy = ("jax", "jaxlib", "numpy", "diffrax", "equinox", "optax", "matplotlib")
    script = f"import sys; sys.modules |= dict.fromkeys({heavy}); from lagrax.cli import main; sys.exit(main({words}))"
    done = python("-c", script)
    assert done.returncode == code
    assert (done.stdout and not done.stderr) if code == 0 else (done.stderr.count("\n") == 1 and not done.stdout)


def test_python_m_and_a_bare_import_need_no_jax():
    done = python("-X", "importtime", "-m", "lagrax", "--help")
    assert done.returncode == 0 and "lagrax.cli" in done.stderr and "jax" not in done.stderr.replace("lagrax", "")
    done = python("-c", "import lagrax, sys; print('jax' in sys.modules, lagrax.ddesolve.__name__, 'jax' in sys.modules)")
    assert done.stdout.split() == ["False", "ddesolve", "True"]


def test_all_public_names_are_offered():
    names = [name for name in vars(_public) if not name.startswith("_")]
    assert {"ddesolve", "DelayTerm", "save", "load", "DiscreteAdjoint", "RESULTS"} <= set(names) <= set(dir(lagrax))
    assert {"nn", "series", "fit_series"} <= set(dir(lagrax)) and lagrax.fit_series is lagrax.series.fit_series
    assert all(getattr(lagrax, name) is getattr(_public, name) for name in names)
    for name in ("dde_solve", "_dde_solve"):
        with pytest.raises(AttributeError, match=f"module 'lagrax' has no attribute '{name}'"):
            getattr(lagrax, name)


def test_a_model_is_saved_under_public_names_whatever_was_imported_first(tmp_path):
    """A bare module of the package does not load the public names; a file that is saved then has them all the same."""
    script = f"""if True:
        from lagrax._adjoint import DiscreteAdjoint
        from lagrax.saving._persist import load, save

        save({str(tmp_path / "a")!r}, DiscreteAdjoint())
        load({str(tmp_path / "a")!r})
    """
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert '"lagrax.DiscreteAdjoint"' in (tmp_path / "a").read_text()


def test_choices_are_those_of_the_experiments():
    assert experiments.NAMES == _choices.EXPERIMENTS
    assert {type(solver()).__name__.lower() for solver in _configuration.SOLVERS.values()} == set(_choices.SOLVERS)
    named = {adjoint.__name__.removesuffix("Adjoint").lower(): adjoint for adjoint in _configuration.ADJOINTS.values()}
    assert named == _configuration.ADJOINTS
