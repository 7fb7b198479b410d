"""Evaluation during training: when it happens, what is kept of it, and that it happens once."""

import contextlib
import json
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from lagrax.saving._persist import load, save
from lagrax.train import CheckpointError, fit, stack, unstack
from lagrax.train import _fit as fit_module
from lagrax.train import _metrics as progress_module

from .test_train_fit import metrics, same
from .train_problem import Line, data, loss, optimizer


class Norm:
    """An evaluation that remembers the models that it was called with."""

    def __init__(self):
        self.models = []
        self._norm = jax.jit(lambda model: jnp.sum(model.weight**2, axis=-1))

    def __call__(self, model):
        self.models.append(model)
        return {"norm": self._norm(model), "weight": model.weight, "calls": 7, "undefined": float("nan")}


def run(evaluate, every=5, iterations=12, model=None, **options):
    settings = {"key": jr.key(1), "batch_size": 4, "progress": False, "evaluate": evaluate, "evaluate_every": every}
    return fit(Line(jr.key(0)) if model is None else model, loss, data(), optimizer, iterations, **(settings | options))


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def check_equal(a, b):
    """Bit by bit, NaN being equal to itself."""
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("stacked", [False, True])
def test_every_so_many_iterations(stacked):
    model = stack([Line(jr.key(i)) for i in range(2)]) if stacked else Line(jr.key(0))
    norm = Norm()
    result = run(norm, model=model, stacked=stacked, snapshots=5, chunk=4)
    assert result.evaluation_iterations.tolist() == [0, 5, 10] and len(norm.models) == 3
    seeds = (2,) if stacked else ()
    assert result.evaluations["norm"].shape == (3, *seeds) and result.evaluations["weight"].shape == (3, *seeds, 3)
    assert result.evaluations["calls"].tolist() == [7] * 3 and np.isnan(result.evaluations["undefined"]).all()
    np.testing.assert_array_equal(result.evaluations["weight"], result.snapshots.weight)
    np.testing.assert_allclose(result.evaluations["norm"], np.sum(result.evaluations["weight"] ** 2, axis=-1))
    # The models are whole, and stay usable while training goes on.
    for i, seen in enumerate(norm.models):
        assert seen.name == "line" and same(seen, unstack(result.snapshots, i))
    without = run(None, None, model=model, stacked=stacked)
    assert same(without.model, result.model) and same(metrics(without), metrics(result))
    assert without.evaluations == {} and without.evaluation_iterations.tolist() == []


def test_resumed_runs_evaluate_once(tmp_path):
    straight, calls = run(Norm(), iterations=23, folder=tmp_path / "straight"), []
    for iterations in (7, 10, 10, 23):
        norm = Norm()
        result = run(norm, iterations=iterations, folder=tmp_path / "parts", resume=True)
        calls.append(len(norm.models))
    assert calls == [2, 1, 0, 2]
    check_equal(result.evaluations, straight.evaluations)
    assert same(result.model, straight.model)
    assert result.evaluation_iterations.tolist() == straight.evaluation_iterations.tolist() == [0, 5, 10, 15, 20]
    rows = [[{**row, "seconds": None} for row in lines(tmp_path / name)] for name in ("parts", "straight")]
    assert rows[0] == rows[1]


def test_lines_of_the_file(tmp_path):
    run(lambda model: {"one": 1, "none": jnp.array([jnp.inf, 2.0])}, every=2, iterations=4, folder=tmp_path)
    rows = [(row["iteration"], row.get("evaluation")) for row in lines(tmp_path)]
    found = {"one": 1, "none": [None, 2.0]}
    assert rows == [(0, found), (0, None), (1, None), (2, found), (2, None), (3, None), (4, found)]


def test_who_stops_does_not_wait(tmp_path, monkeypatch):
    """An evaluation that is due when a signal comes is made when the run goes on."""

    @contextlib.contextmanager
    def pressed():
        answers = iter([False, True])
        yield lambda: next(answers)

    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "interruptible", pressed)
        part = run(Norm(), chunk=5, folder=tmp_path)
    assert part.ended == "interrupted" and part.iterations == 5 and part.evaluation_iterations.tolist() == [0]
    whole = run(Norm(), folder=tmp_path, resume=True)
    check_equal(whole.evaluations, run(Norm()).evaluations)
    assert [row["iteration"] for row in lines(tmp_path) if "evaluation" in row] == [0, 5, 10]


def test_time(monkeypatch):
    """Evaluations count for `until` and for the seconds, but do not make the dispatches shorter."""
    measured = []
    monkeypatch.setattr(fit_module.Pace, "measured", lambda self, count, seconds: measured.append(seconds))
    slow = lambda model: time.sleep(0.3) or {}
    result = run(slow, every=1, iterations=2)
    assert result.seconds > 0.9 and len(measured) == 2 and max(measured) < 0.3
    assert result.history["seconds"][1] - result.history["seconds"][0] > 0.3
    late = run(slow, every=1, iterations=10**6, until=result.seconds)
    assert late.ended == "out of time" and late.iterations < 100


def test_diverged_runs_are_evaluated():
    value = lambda model, batch, key: (jnp.where(model >= 3, jnp.nan, -30.0 * model), {})
    result = fit(
        jnp.zeros(()),
        value,
        None,
        optimizer,
        9,
        key=jr.key(0),
        progress=False,
        evaluate=lambda m: {"m": m},
        evaluate_every=3,
    )
    assert result.evaluations["m"].shape == (4,)


def test_progress(capsys, monkeypatch):
    monkeypatch.setattr(progress_module, "_FILE_EVERY", 0.0)
    model = stack([Line(jr.key(i)) for i in range(3)])
    evaluate = lambda model: {"accuracy": jnp.array([0.5, 0.97, 1.0]), "table": jnp.zeros((3, 2)), "mean": 0.25}
    run(evaluate, model=model, stacked=True, progress=True)
    printed = capsys.readouterr().err
    assert "  accuracy 0.97  mean 0.25  " in printed and "table" not in printed


class Changing:
    """Returns one thing after the other."""

    def __init__(self, *results):
        self.results = iter(results)

    def __call__(self, model):
        return next(self.results)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"evaluate": Norm()}, "evaluate without evaluate_every, expected both or none: pass evaluate_every=100"),
        ({"every": 5}, "evaluate_every = 5 without evaluate, expected both or none: pass evaluate="),
        ({"evaluate": Norm(), "every": 0}, "evaluate_every = 0, expected a positive whole number"),
        ({"evaluate": 3, "every": 5}, "evaluate is a int, expected a function of the model"),
        ({"evaluate": Changing({"a": 1}, {"b": 1}), "every": 5}, r"returned \['b'\], expected \['a'\] as before: return"),
        (
            {"evaluate": Changing({"a": 1}, {"a": [1]}), "every": 5},
            r"'a' with shape \(1,\), expected \(\) as before: return",
        ),
    ],
)
def test_values(options, match):
    with pytest.raises(ValueError, match=match):
        run(**({"evaluate": None, "every": None} | options))


@pytest.mark.parametrize(
    "result, match",
    [
        (0.97, "evaluate returned a float, expected a dict of arrays: such as {'accuracy': accuracy}"),
        ({1: 0.97}, "evaluate returned a dict with names that are no strings, expected"),
        ({"a": "high"}, "evaluate returned 'a' as a str, expected an array of real numbers"),
        ({"a": [[1], [1, 2]]}, "evaluate returned 'a' as a list, expected"),
        ({"a": 1j}, "evaluate returned 'a' as a complex, expected"),
    ],
)
def test_results(result, match, tmp_path):
    with pytest.raises(TypeError, match=match):
        run(lambda model: result, folder=tmp_path / "run")
    run(Norm(), iterations=1, folder=tmp_path / "run")  # a run that never began does not block the folder


def test_resuming_another_run(tmp_path):
    run(Norm(), iterations=6, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"another evaluate_every \(evaluate_every: 5, now 4\)"):
        run(Norm(), every=4, folder=tmp_path, resume=True)
    with pytest.raises(CheckpointError, match=r"another evaluate_every \(evaluate_every: 5, now None\)"):
        run(None, every=None, folder=tmp_path, resume=True)


def test_checkpoints_of_another_version(tmp_path):
    run(Norm(), iterations=6, folder=tmp_path)
    content = load(tmp_path / "checkpoint.lagrax")
    save(tmp_path / "checkpoint.lagrax", {**content, "checkpoint version": content["checkpoint version"] - 1})
    with pytest.raises(CheckpointError, match="is not a checkpoint of this version of lagrax"):
        run(Norm(), folder=tmp_path, resume=True)
