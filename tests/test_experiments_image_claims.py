"""The image models compared: smaller images, differences with their intervals, verdicts, and a run in every data set."""

import dataclasses
import json
import os
import signal

import jax
import numpy as np
import pytest
from scipy import stats

import lagrax as lx
from lagrax import experiments, runner
from lagrax.datasets import DataError
from lagrax.datasets.images import Images, _shares
from lagrax.experiments.images import _claims, _figures
from lagrax.experiments.images import _classifying as classification
from lagrax.experiments.images import _models as models
from lagrax.runner import Options, UserError, _folder, configure, figures

from .image_files import FILES, write
from .image_files import own_places as own_places

SMALL = {"limit_train": "6", "limit_test": "3", "batch": "3", "filters": "3", "epochs": "1"}


# --- images -----------------------------------------------------------------------------------------------------------


def some(count, sides, channels=1):
    draw = np.random.default_rng(0)
    pixels = lambda n: draw.integers(0, 256, (n, channels, sides, sides)).astype(np.uint8)
    return Images("mnist", pixels(count), np.arange(count, dtype=np.int32), pixels(2), np.zeros(2, np.int32))


def test_images_are_averaged_down():
    images = some(3, 8, channels=2)
    halved = images.smaller(0.5)
    means = images.train_images.reshape(3, 2, 4, 2, 4, 2).mean(axis=(3, 5))
    np.testing.assert_array_equal(halved.train_images, np.rint(means))
    assert halved.test_images.shape == (2, 2, 4, 4) and halved.test_images.dtype == np.uint8
    np.testing.assert_array_equal(images.smaller(4.0).test_images, halved.test_images)
    assert images.smaller(1.0) is images and images.smaller(8.0) is images


def test_sizes_that_do_not_divide_share_pixels():
    """Three pixels out of eight: 8/3 old ones each, and a constant image stays constant."""
    np.testing.assert_allclose(_shares(8, 3)[1], [0, 0, 1 / 8, 3 / 8, 3 / 8, 1 / 8, 0, 0], atol=1e-7)
    images = some(2, 8)
    images.train_images[:] = 77
    assert (images.smaller(3.0).train_images == 77).all()


@pytest.mark.parametrize("size", [9.0, 2.5, 0.3])
def test_sizes_that_are_not_possible(size):
    with pytest.raises(DataError, match=f"size = {size:g}, expected 1 to 8 for the images of mnist, or a fraction"):
        some(2, 8).smaller(size)


def test_validation_leaves_the_test_images_alone():
    images = some(5, 4)
    split = images.held_out(2)
    np.testing.assert_array_equal(split.train_images, images.train_images[:3])
    np.testing.assert_array_equal(split.test_images, images.train_images[3:])
    np.testing.assert_array_equal(split.test_labels, [3, 4])
    assert "not on test images" in split.notes[0] and images.held_out(0) is images
    with pytest.raises(DataError, match="validation = 5, expected less than the 5 training images"):
        images.held_out(5)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        (
            {"size": "9"},
            "size = 9, expected 1 to 8 for the images of digits, or a fraction such as 0.5: images are averaged",
        ),
        ({"validation": "6"}, "validation = 6, expected less than the 6 training images there are"),
        ({"limit_test": "361"}, "361 test images of digits are asked for, expected 1 to 360"),
    ],
)
def test_images_that_are_not_to_be_had_are_the_users_mistake(numbers, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        runner.start(experiments.load("images"), tmp_path, Options("smoke", numbers=SMALL | numbers), progress=False)


def test_reduced_preset():
    """A quarter of the paper's filters, half of its images' sides, and models of equal size in every group."""
    config = configure(experiments.load("images"), Options("reduced"))
    assert config.seeds == 5 and config.tolerance == 1e-3 and config.numbers.size == 0.5
    assert [models.filters(name, "cifar10", 23) for name in ("NODE", "NDDE", "NODE+NDDE")] == [23, 23, 16]
    for dataset, shape in (("mnist", (1, 14, 14)), ("cifar10", (3, 16, 16))):
        for group in _claims.groups(list(models.MODELS)):
            counts = [models.parameters(name, shape, models.filters(name, dataset, 23)) for name in group]
            assert max(counts) < 1.05 * min(counts)
    with pytest.raises(UserError, match="no preset of spiral called 'reduced'"):
        configure(experiments.load("spiral"), Options("reduced"))
    with pytest.raises(UserError, match=r"size = 0\.0, expected more than 0"):
        configure(experiments.load("images"), Options("smoke", numbers={"size": "0"}))


# --- differences ------------------------------------------------------------------------------------------------------


def test_interval_over_seeds_is_students():
    values = np.array([0.3, 0.9, -0.1, 0.4, 0.6])
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(_claims.student(values), expected)
    assert _claims.student(values[:1]) is None and _claims.student(np.array([1.0, np.nan])) is None


def test_interval_over_images_covers_the_truth_as_often_as_it_says():
    """Of 60 samples of 150 images about 57 intervals hold the mean 0; the deviation of that number is 1.7."""
    draw = np.random.default_rng(1)
    intervals = [_claims.resampled(draw.choice([-1.0, 0.0, 0.0, 1.0], 150)) for _ in range(60)]
    assert 52 <= sum(low <= 0 <= high for low, high in intervals) < 60
    values = draw.normal(2.0, 3.0, 4000)
    half = 1.96 * 3.0 / np.sqrt(4000)
    np.testing.assert_allclose(_claims.resampled(values), [values.mean() - half, values.mean() + half], atol=0.1 * half)
    assert _claims.resampled(np.array([1.0, np.inf])) is None


@pytest.mark.parametrize(
    ("seeds", "images", "higher", "lower"),
    [
        ((0.1, 0.5), (0.2, 0.4), True, False),
        ((-0.5, -0.1), (-0.4, -0.2), False, True),
        ((0.1, 0.5), (-0.1, 0.7), None, None),
        ((-0.1, 0.7), (0.1, 0.5), None, None),
        ((0.1, 0.5), None, True, False),
        (None, (0.1, 0.5), None, None),
    ],
)
def test_verdict_needs_both_intervals(seeds, images, higher, lower):
    difference = _claims.Difference(0.3, seeds, images)
    assert difference.verdict(1) is higher and difference.verdict(-1) is lower


def test_claims_of_several_parts():
    assert _claims.together([True, True]) is True
    assert _claims.together([True, None]) is None
    assert _claims.together([None, False, True]) is False
    difference = _claims.Difference(0.3, (0.1, 0.5), (-0.2, 0.8))
    assert difference.text("{:+.1f}") == "+0.3 (seeds +0.1 to +0.5, images -0.2 to +0.8)"


def made_up(accuracies, images=400):
    """What is measured of models with these mean accuracies, seeds 1 % apart in the same way for all of them."""
    measured, each = {}, {}
    for name, accuracy in accuracies.items():
        seeds = accuracy + np.arange(-2.0, 3.0) + 0.05 * np.sin(np.arange(5) + len(name))
        right = np.arange(images) < np.round(images * seeds[:, None] / 100)
        loss = np.where(right, 0.1, 3.0)
        measured[name] = {
            "epochs": 3,
            "accuracy": {"seeds": list(seeds)},
            "test loss": {"seeds": list(loss.mean(axis=1))},
            "training loss": {"seeds": list(1 - seeds / 100)},
        }
        each[name] = {"right": right, "loss": loss}
    return measured, each


def judged(accuracies, preset="reduced"):
    settings = type("Settings", (), {"preset": preset})()
    return _claims.claims(settings, "mnist", _claims.comparisons(*made_up(accuracies)))


def test_claims_are_judged_by_the_intervals():
    """In the paper's order, against it, and too close to tell although every seed differs by a point from the next."""
    paper = {"NODE": 80.0, "NDDE": 85.0, "NODE+NDDE": 90.0}
    assert [claim.reproduced for claim in judged(paper)] == [True, True, True]
    assert [claim.reproduced for claim in judged({**paper, "NODE": 95.0})] == [False, False, False]
    close = judged({**paper, "NODE+NDDE": 85.0})
    assert [claim.reproduced for claim in close] == [True, True, None] and close[2].verdict == "– cannot tell"
    assert "NODE+NDDE − NDDE" in close[2].measured and "seeds" in close[2].measured
    assert [claim.verdict for claim in judged(paper, "smoke")] == ["– not comparable"] * 3


def test_claims_of_the_models_there_are():
    two = judged({"A1+NODE": 80.0, "A1+NDDE": 85.0})
    assert [claim.reproduced for claim in two] == [True, True] and "A1+NDDE − A1+NODE +5.0" in two[1].measured
    assert not judged({"NODE": 80.0, "A1+NDDE": 85.0})
    assert [claim.paper for claim in judged({"NDDE": 80.0, "NODE+NDDE": 85.0})] == []
    measured, each = made_up({"NODE": 80.0, "NDDE": 85.0})
    measured["NDDE"]["epochs"] = 0
    assert not _claims.comparisons(measured, each)


def test_table_of_differences():
    found = _claims.comparisons(*made_up({"NODE": 80.0, "NDDE": 85.0, "NODE+NDDE": 82.0}))
    (table,) = _claims.table("mnist", found)
    assert len(table.rows) == 9 and table.rows[0][:2] == ("NDDE − NODE", "accuracy, points")
    assert {row[-1] for row in table.rows} == {"reproduced", "not reproduced"}
    assert [row[4] for row in table.rows if row[1] == "training loss"] == ["–"] * 3
    assert len(_claims.plain(found)) == 9 and not _claims.table("mnist", [])


def test_figure_of_differences(tmp_path):
    """A panel for each data set with several seeds; the paper's own differences where it has any."""
    settings = type("Settings", (), {"folder": tmp_path})()
    found = _claims.comparisons(*made_up({"NODE": 80.0, "NDDE": 85.0}))
    (figure,) = _figures.draw_differences(settings, {"mnist": found, "digits": found, "svhn": []})
    assert (tmp_path / f"{figure.stem}.png").read_bytes().startswith(b"\x89PNG")
    _, axes = figures.new()
    for dataset, expected in (("mnist", [5.0, 96.22 - 96.21]), ("digits", [5.0])):
        axes[0, 0].clear()
        _figures._intervals(axes[0, 0], 0, found[0], dataset)
        points = [line.get_xdata()[0] for line in axes[0, 0].lines if line.get_linestyle() == "None"]
        np.testing.assert_allclose(points, expected, atol=0.1)
    alone = [dataclasses.replace(each, difference=_claims.Difference(5.0, None, None)) for each in found]
    assert not _figures.draw_differences(settings, {"mnist": alone})


# --- runs -------------------------------------------------------------------------------------------------------------


def last_test(folder):
    with np.load(folder / "test.npz") as file:
        return dict(file)


@pytest.mark.parametrize(
    ("dataset", "model"),
    [
        ("mnist", "NODE"),
        *[pytest.param(*case, marks=pytest.mark.slow) for case in (("svhn", "A1+NDDE"), ("cifar10", "NDDE"))],
    ],
)
def test_smoke_run_of_every_data_set(dataset, model, tmp_path):
    """From files as their publishers make them, with images of half the size, to what is kept for the statistics."""
    data = write(tmp_path / "data", FILES[dataset]())
    numbers = {**SMALL, "dataset": dataset, "models": model, "data_dir": str(data), "size": "0.5"}
    numbers["first_step"] = "1.0"
    folder = runner.start(experiments.load("images"), tmp_path, Options("smoke", numbers=numbers), progress=False)
    found = json.loads((folder / "metrics.json").read_text())[dataset][model]
    each = last_test(folder / dataset / model)
    assert each["right"].shape == each["loss"].shape == (2, 3) and each["right"].dtype == bool
    np.testing.assert_allclose(100 * each["right"].mean(axis=1), found["accuracy"]["seeds"], rtol=1e-6)
    np.testing.assert_allclose(each["loss"].mean(axis=1), found["test loss"]["seeds"], rtol=1e-6)
    outcome, _ = _folder.read_outcome(folder)
    sides = 14 if dataset == "mnist" else 16
    assert f"6 images of {sides}×{sides} pixels to train with, 3 to test" in outcome.notes[0]
    assert any("a first step of 1;" in note for note in outcome.notes)
    assert lx.load(folder / dataset / model / "seed-1.lagrax").flow.dt0 == 1.0


@pytest.mark.parametrize("dataset", FILES)
def test_missing_files_say_how_to_get_them(dataset, tmp_path):
    contents = FILES[dataset]()
    lacking = next(iter(contents)) if dataset == "mnist" else list(contents)[-1]
    data = write(tmp_path / "data", {name: content for name, content in contents.items() if name != lacking})
    numbers = {**SMALL, "dataset": dataset, "models": "NODE", "data_dir": str(data)}
    with pytest.raises(UserError, match=f"holds no {lacking}, expected it there: get http") as caught:
        runner.start(experiments.load("images"), tmp_path, Options("smoke", numbers=numbers), progress=False)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_interrupted_and_resumed_run_has_the_same_numbers(tmp_path, monkeypatch):
    numbers = {**SMALL, "models": "NODE,NDDE", "limit_train": "32", "limit_test": "24", "epochs": "2", "batch": "16"}
    start = lambda out: runner.start(
        experiments.load("images"), tmp_path / out, Options("smoke", numbers=numbers), progress=False
    )
    whole = start("whole")
    averages, calls = classification.averages, []

    def interrupting(each):
        calls.append(1)
        if len(calls) == 5:  # before the second epoch of the second model
            os.kill(os.getpid(), signal.SIGINT)
        return averages(each)

    monkeypatch.setattr(classification, "averages", interrupting)
    with pytest.raises(KeyboardInterrupt):
        start("parts")
    (parts,) = (tmp_path / "parts" / "images").iterdir()
    assert not _folder.is_finished(parts)
    runner.resume(experiments.load("images"), parts, Options(), progress=False)
    read = lambda folder: json.loads((folder / "metrics.json").read_text())
    timeless = lambda found: {key: value for key, value in found.items() if key not in ("seconds", "images per second")}
    for name in ("NODE", "NDDE"):
        assert timeless(read(parts)["digits"][name]) == timeless(read(whole)["digits"][name])
        for key in ("loss", "right"):
            one, two = (last_test(folder / "digits" / name)[key] for folder in (whole, parts))
            np.testing.assert_array_equal(one, two)
    assert read(parts)["differences"] == read(whole)["differences"]


def test_seeds_have_the_same_batches_in_all_models(monkeypatch, tmp_path):
    """The key that shuffles them does not depend on the model."""
    keys = []
    monkeypatch.setattr(
        classification, "train_seeds", lambda *args, **options: keys.append(jax.random.key_data(args[6])) or _Stop.stop()
    )
    for name in ("NODE", "A1+NDDE"):
        numbers = {**SMALL, "models": name}
        with pytest.raises(_Stop):
            runner.start(experiments.load("images"), tmp_path / name, Options("smoke", numbers=numbers), progress=False)
    np.testing.assert_array_equal(keys[0], keys[1])


class _Stop(Exception):
    @classmethod
    def stop(cls):
        raise cls
