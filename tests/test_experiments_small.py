"""The experiments that train nothing, or little, at their smallest: files, numbers, statements."""

import json
import math

import numpy as np
import pytest

from lagrax import experiments, runner
from lagrax._choices import PRESETS
from lagrax.experiments.complexity import growth
from lagrax.experiments.separation import best_line
from lagrax.experiments.universal import monotone_error
from lagrax.runner import Options, _folder, of_seeds


def smoke(name, out):
    """Runs an experiment at `smoke`, looks for everything it should write, and returns the metrics.

    Called by one test per experiment: workers that run tests side by side would each repeat a shared run.
    """
    experiment = experiments.load(name)
    folder = runner.start(experiment, out, Options("smoke"), progress=False)
    outcome, _ = _folder.read_outcome(folder)
    assert outcome.figures and _folder.is_finished(folder)
    for figure in outcome.figures:
        assert (folder / f"{figure.stem}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / f"{figure.stem}.pdf").read_bytes().startswith(b"%PDF")
    assert {"config.json", "metrics.json", "report.html"} <= {path.name for path in folder.iterdir()}
    assert not [path for path in folder.iterdir() if path.name.endswith(".partial")]
    assert all(claim.reproduced is not False for claim in outcome.claims)
    assert set(experiment.presets) == set(PRESETS)
    return json.loads((folder / "metrics.json").read_text())


def test_diagram(tmp_path):
    assert smoke("diagram", tmp_path)["NODE"]["h(T)"] == pytest.approx(math.exp(-0.9 * 2.6), abs=1e-4)


def test_crossing(tmp_path):
    ode, dde = smoke("crossing", tmp_path).values()
    assert ode["x(1) from 1"] == pytest.approx(math.exp(-2), abs=1e-5)
    assert dde["x(1) from -1"] == pytest.approx(1, abs=1e-6)
    assert dde["x(1) from 1"] == pytest.approx(-1, abs=1e-6)


def test_separation(tmp_path):
    found = smoke("separation", tmp_path)
    assert found["before"]["share on the right side"]["median"] < 0.9 and found["before"]["gap"]["median"] == 0
    # x₁ + T (‖x‖ − r) lies below 1 − 5 for the disc and above −2 + 5 for the ring.
    assert found["after"]["share on the right side"]["median"] == 1 and found["after"]["gap"]["min"] >= 7


@pytest.mark.slow
def test_universal(tmp_path):
    for values in smoke("universal", tmp_path).values():
        bound = values["least error of any flow of the line"]
        assert min(values["trained"]["NODE"]["seeds"]) >= 0.99 * bound > 0.4
        assert values["least squares"]["16"]["median"] < min(0.05, values["least squares"]["4"]["median"])


@pytest.mark.slow
def test_complexity(tmp_path):
    found = smoke("complexity", tmp_path)
    assert all(row["error"] < 1e-2 for rows in found.values() for row in rows.values())
    assert found["piecewise"]["2"]["kept"] - found["piecewise"]["1"]["kept"] == 2  # one state of two components
    assert found["discrete"]["2"]["kept"] > found["piecewise"]["2"]["kept"]
    assert found["piecewise"]["2"]["backward"] > found["discrete"]["2"]["backward"] > 0


def test_best_line_decides_separability():
    points = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
    line = best_line(points, np.array([True, True, False, False]))
    assert line.right == 1 and line.gap == pytest.approx(2)
    crossed = best_line(points, np.array([True, False, False, True]))
    assert crossed.right < 1 and crossed.gap == 0


def test_monotone_error():
    assert monotone_error(np.array([0.0, 1.0, 5.0])) == 0
    assert monotone_error(np.array([1.0, 3.0, 2.0])) == pytest.approx(math.sqrt(0.5 / 3))
    x = np.linspace(-1, 1, 2001)
    assert monotone_error(-x) == pytest.approx(1 / math.sqrt(3), rel=1e-3)


def test_growth_and_of_seeds():
    rows = {str(n): {"cost": 3.0 * n**2} for n in (1, 2, 4)}
    assert growth(rows, "cost") == pytest.approx(2)
    assert of_seeds([3.0, 1.0, 2.0]) == {"seeds": [3.0, 1.0, 2.0], "median": 2.0, "min": 1.0, "max": 3.0}
