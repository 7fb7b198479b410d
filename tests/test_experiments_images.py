"""The image experiment: names and sizes of its models, augmentation, tests, a small run, and one on several processes."""

import json
import os
import socket
import subprocess
import sys

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lagrax as lx
from lagrax import cli, experiments, runner
from lagrax.datasets.images import Images
from lagrax.experiments.images import _classifying as classification
from lagrax.experiments.images import _models as models
from lagrax.experiments.images._claims import groups
from lagrax.experiments.images._experiment import _Budget
from lagrax.nn import ImageClassifier
from lagrax.runner import Options, UserError, _folder
from lagrax.train import stack

TINY = {"models": "NDDE", "limit_train": "32", "limit_test": "24", "epochs": "2", "batch": "16", "filters": "3"}


def test_names_and_sizes():
    assert models.chosen("all") == list(models.ACCURACY) and len(models.MODELS) == 12
    assert models.chosen("A1+NDDE, NODE") == ["NODE", "A1+NDDE"]
    with pytest.raises(UserError, match=r"no image model 'A1\+NODDE': did you mean"):
        models.chosen("A1+NODDE")
    with pytest.raises(UserError, match="no data set 'minst': did you mean mnist"):
        models.datasets("cifar10,minst")
    assert models.filters("A1+NODE+NDDE", "mnist", 0) == 61
    assert [models.filters(name, "digits", 0) for name in ("NODE", "NDDE", "NODE+NDDE", "A4+NODE+NDDE")] == [16, 16, 11, 9]
    assert models.filters("A4+NODE", "cifar10", 46) == 32 and models.filters("A4+NODE+NDDE", "mnist", 1) == 1
    assert groups(["NODE", "A1+NODE", "NDDE"]) == [["NODE", "NDDE"], ["A1+NODE"]]
    assert models.reported("NDDE", "svhn") == "81.49 ± 0.09 %" and models.reported("NDDE", "digits") == "–"


def test_parameters_table(capsys):
    assert cli.main(["reproduce", "images", "--table", "parameters"]) == 0
    text = capsys.readouterr().out
    assert "NODE+NDDE     64/105680  64/82156  64/105680" in text and len(text.splitlines()) == 14
    assert cli.main(["reproduce", "spiral", "--table", "parameters"]) == 2
    assert "is an option of images" in capsys.readouterr().err


def test_options_of_images(capsys, tmp_path):
    assert cli.main(["reproduce", "spiral", "--dataset", "mnist", "--out", str(tmp_path)]) == 2
    assert "--dataset is an option of images" in capsys.readouterr().err
    words = ["reproduce", "images", "--dataset", "mnist", "--data-dir", str(tmp_path / "absent"), "--out", str(tmp_path)]
    assert cli.main(words) == 1
    assert "absent" in capsys.readouterr().err
    assert cli.main(["reproduce", "images", "--coordinator", "localhost:1", "--out", str(tmp_path)]) == 2
    assert "--processes and --process missing" in capsys.readouterr().err
    words = ["reproduce", "images", "--coordinator", "localhost:1", "--processes", "2", "--process", "2"]
    assert cli.main(words) == 2
    assert "--process 2, expected one of 0, …, 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"dataset": "minst"}, "no data set 'minst'"),
        ({"models": "NODDE"}, "no image model 'NODDE'"),
        ({"augmentation": "flip"}, "no augmentation 'flip'"),
        ({"precision": "float16"}, "no precision 'float16'"),
        ({"filters": "-2"}, "filters = -2, expected at least 0"),
        ({"epochs": "0", "models": "NODE"}, "epochs = 0, expected at least 1"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_numbers_leave_no_folder(numbers, message, tmp_path):
    with pytest.raises(UserError, match=message):
        runner.start(experiments.load("images"), tmp_path, Options("smoke", numbers={"models": "all"} | numbers))
    assert not list(tmp_path.iterdir())


def test_augmentation_moves_and_mirrors():
    """From the key alone; every image is the original moved by at most two pixels, or its mirror image."""
    image = jnp.arange(36.0).reshape(1, 1, 6, 6)
    many = jnp.broadcast_to(image, (200, 1, 6, 6))
    key = jax.random.key(0)
    assert classification.augmented("none", key, many) is many
    moved = np.asarray(classification.augmented("shift", key, many))
    assert np.array_equal(moved, classification.augmented("shift", key, many))
    padded = np.pad(np.asarray(image[0]), [(0, 0), (2, 2), (2, 2)], mode="edge")
    possible = {padded[:, i : i + 6, j : j + 6].tobytes() for i in range(5) for j in range(5)}
    assert {each.tobytes() for each in moved} == possible
    both = np.asarray(classification.augmented("shift+flip", key, many))
    mirrored = [each.tobytes() not in possible for each in both]
    assert 60 < sum(mirrored) < 140
    assert {np.ascontiguousarray(each[..., ::-1]).tobytes() for each, m in zip(both, mirrored, strict=True) if m} <= possible


def draw_images(train, test):
    generator = np.random.default_rng(0)
    bytes_of = lambda n: generator.integers(0, 256, (n, 1, 8, 8)).astype(np.uint8)
    labels = lambda n: generator.integers(0, 10, n).astype(np.int32)
    return Images("digits", bytes_of(train), labels(train), bytes_of(test), labels(test))


def test_tests_count_every_image_once():
    """In batches of 16, of 21 images, for two seeds: what all images at once give."""
    problem = classification.place(draw_images(32, 21), 16)
    controller = dfx.PIDController(rtol=1e-6, atol=1e-6)
    make = lambda key: ImageClassifier("NDDE", (1, 8, 8), 2, stepsize_controller=controller, key=key)
    both = [make(key) for key in jax.random.split(jax.random.key(0))]
    found = classification.averages(classification.tester(problem, 16)(stack(both)))
    images = problem.standardised(problem.test[0])
    for seed, model in enumerate(both):
        logits = eqx.filter_jit(model)(images)
        loss = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, problem.test[1]))
        right = jnp.mean((jnp.argmax(logits, axis=1).astype(jnp.int32) == problem.test[1]).astype(float))
        np.testing.assert_allclose(found["test loss"][seed], loss, rtol=1e-5)
        np.testing.assert_allclose(found["accuracy"][seed], right, rtol=1e-5)
    assert abs(float(jnp.mean(problem.standardised(problem.train[0])))) < 1e-5


def test_budget():
    assert _Budget(0.0, 3).next() is None
    budget = _Budget(1.0, 3)
    first, second = budget.next(), budget.next()
    assert 19 < first <= 20 and 29 < second <= 30


def test_small_run(tmp_path):
    """Files, numbers by epoch, a model that loads; the time budget of a second still reports."""
    run = lambda **numbers: runner.start(
        experiments.load("images"), tmp_path, Options("smoke", numbers=TINY | numbers), progress=False
    )
    folder = run()
    found = json.loads((folder / "metrics.json").read_text())["digits"]["NDDE"]
    assert found["epochs"] == 2 and found["ended"] == "finished" and len(found["accuracy"]["seeds"]) == 2
    assert np.shape(found["by epoch"]["accuracy"]) == (3, 2) and np.shape(found["by epoch"]["training loss"]) == (2, 2)
    outcome, _ = _folder.read_outcome(folder)
    assert [figure.stem for figure in outcome.figures] == ["curves", "evaluations-digits"]
    assert outcome.tables[0].rows[0][0] == "NDDE" and not outcome.claims
    model = lx.load(folder / "digits" / "NDDE" / "seed-0.lagrax")
    assert model(jnp.zeros((1, 8, 8))).shape == (10,)


def test_other_numbers_of_the_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [object()] * 3)
    with pytest.raises(UserError, match="batch = 16, expected a multiple of the 3 devices: --set batch=18"):
        classification.place(draw_images(16, 16), 16)


@pytest.mark.slow
def test_processes_and_devices(tmp_path):
    """Twenty iterations on one device, on eight, and in two processes that talk over the loopback: one loss curve."""
    numbers = {**TINY, "limit_train": "160", "epochs": "2"}
    words = [sys.executable, "-m", "lagrax", "reproduce", "images", "--preset", "smoke", "--seeds", "1"]
    words += [part for name, value in numbers.items() for part in ("--set", f"{name}={value}")]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    joined = ["--coordinator", f"localhost:{port}", "--processes", "2", "--process"]
    plain = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    start = lambda out, *more, **env: subprocess.Popen([*words, "--out", str(tmp_path / out), *more], env=plain | env)
    running = [
        start("one"), start("eight", JAX_NUM_CPU_DEVICES="8"), start("two", *joined, "0"), start("two", *joined, "1"),
    ]  # fmt: skip
    try:
        assert [process.wait(300) for process in running] == [0] * 4
    finally:
        for process in running:
            process.kill()

    def curve(out):
        (file,) = (tmp_path / out).glob("images/*/digits/NDDE/metrics.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    one = curve("one")
    assert len(one) == 20 and one[-1] != one[0]
    for other in ("eight", "two"):
        np.testing.assert_allclose(curve(other), one, rtol=1e-4)
