"""Every mistake gets one sentence: what was given, what was expected, what to do."""

import inspect

import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

from lagrax.train import CheckpointError, fit, stack

from .train_problem import Line, data, loss, optimizer


def run(model=None, loss=loss, xy=None, iterations=3, optimizer=optimizer, **options):
    model = Line(jr.key(0)) if model is None else model
    xy = data() if xy is None else xy
    return fit(model, loss, xy, optimizer, iterations, **({"key": jr.key(1), "progress": False} | options))


@pytest.mark.parametrize(
    "options, match",
    [
        ({"iterations": 0}, "iterations = 0, expected a positive whole number"),
        ({"iterations": 2.0}, "iterations = 2.0, expected"),
        ({"batch_size": 0}, "batch_size = 0, expected"),
        ({"batch_size": 11}, "batch_size = 11 with 10 samples, expected at most as many"),
        ({"checkpoint_every": -1}, "checkpoint_every = -1, expected"),
        ({"snapshots": 0}, "snapshots = 0, expected"),
        ({"chunk": True}, "chunk = True, expected"),
        ({"until": 0.0}, "until = 0.0, expected"),
        ({"resume": True}, "resume=True without a folder"),
        ({"stacked": True}, r"model.bias has None entries along axis 0"),
        ({"xy": (jnp.ones((3, 3)), jnp.ones(4)), "batch_size": 2}, r"data\[1\] has 4 entries along axis 0"),
        ({"xy": {}, "batch_size": 2}, "data has none entries along axis 0"),
        (
            {"model": stack([Line(jr.key(0))] * 3), "stacked": True, "data_stacked": True},
            "the data has 10 seeds and the model 3",
        ),
        (
            {"loss": lambda model, batch: (model.bias, {})},
            r"loss\(model, batch\) cannot be called as loss\(model, batch, key\)",
        ),
        ({"loss": lambda model, batch, key, tally: (model.bias, {})}, "missing a required argument: 'tally'"),
        ({"loss": 3}, "loss is a int, expected a function"),
        ({"loss": lambda m, b, k: (m.bias, {"loss": m.bias})}, "a metric named 'loss'"),
    ],
)
def test_values(options, match):
    with pytest.raises(ValueError, match=match):
        run(**options)


@pytest.mark.parametrize(
    "bad, match",
    [
        (lambda model, batch, key: model.bias, "expected a scalar and a dict of metrics"),
        (lambda model, batch, key: (model.weight, {}), r"float64\[3\] as its value, expected a real scalar"),
    ],
)
def test_losses(bad, match, tmp_path):
    with pytest.raises(TypeError, match=match):
        run(loss=bad, folder=tmp_path / "run")
    run(folder=tmp_path / "run")  # a run that never began does not block the folder


def test_stacks():
    with pytest.raises(ValueError, match="got no models"):
        stack([])
    with pytest.raises(ValueError, match="the models differ"):
        stack([{"a": jnp.ones(2)}, {"a": jnp.ones(3)}])
    with pytest.raises(ValueError, match="the models differ"):
        stack([{"a": jnp.ones(2), "b": 1.0}, {"a": jnp.ones(2), "b": 2.0}])


def test_folder_in_use(tmp_path):
    run(folder=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match=r"already holds a run .*pass resume=True"):
        run(folder=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/run cannot be written \(Not a directory\)"):
        run(folder=tmp_path / "file" / "run")


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:-9] + b"\1" * 9, lambda b: b"nonsense", lambda b: b""])
def test_corrupt_checkpoint(tmp_path, damage):
    run(folder=tmp_path)
    path = tmp_path / "checkpoint.lagrax"
    path.write_bytes(damage(path.read_bytes()))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointError, match=r"the checkpoint cannot be read .*checkpoint.lagrax.*restore it"):
        run(folder=tmp_path, iterations=5, resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_not_a_checkpoint(tmp_path):
    from lagrax.saving._persist import save

    save(tmp_path / "checkpoint.lagrax", {"a": 1})
    with pytest.raises(CheckpointError, match="is not a checkpoint of this version"):
        run(folder=tmp_path, resume=True)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"model": {"w": jnp.ones(3)}}, r"another model \(model\['w'\]: absent, now float64\[3\]\)"),
        ({"optimizer": optax.sgd(0.1)}, r"another optimizer \(optimizer.*now absent"),
        ({"xy": data(12)}, r"another data \(data\[0\]: float64\[10,3\], now float64\[12,3\]\)"),
        ({"xy": (data()[0], -data()[1])}, "another checksum of the data"),
        ({"key": jr.key(2)}, "another key"),
        ({"batch_size": 2}, r"another batch_size \(batch_size: None, now 2\)"),
        ({"snapshots": 2}, "another snapshots"),
        ({"iterations": 2}, "is at iteration 3, expected at most iterations = 2"),
    ],
)
def test_resuming_another_run(tmp_path, options, match):
    run(folder=tmp_path)
    simple = lambda model, batch, key: (jnp.sum(model["w"]), {})
    given = options | ({"loss": simple} if "model" in options else {})
    with pytest.raises(CheckpointError, match=match):
        run(**({"iterations": 5} | given), folder=tmp_path, resume=True)


@pytest.mark.parametrize(
    "optimizer, key, match",
    [
        (optax.adam, jr.key(0), r"optimizer is adam, expected an Optax optimiser: pass such as optax.adam\(1e-3\)"),
        (optimizer, 0, r"key is 0, expected a random key: pass such as jax.random.key\(0\)"),
    ],
)
def test_no_optimiser_and_no_key(optimizer, key, match):
    untyped = inspect.unwrap(fit)  # as users call it: here in the tests types are checked before
    with pytest.raises(ValueError, match=match):
        untyped(Line(jr.key(0)), loss, data(), optimizer, 3, key=key, progress=False)
