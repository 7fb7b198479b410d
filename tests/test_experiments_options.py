"""Numbers that an experiment cannot serve are refused before anything is written; runs that fail do not trap --resume."""

import json

import pytest

from lagrax import cli, experiments, runner
from lagrax.runner import Options, UserError, _folder, configure
from lagrax.runner._configuration import from_json

from .test_cli import out as out
from .test_cli import run, trivial


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("crossing", "points=1", "points = 1, expected at least 2"),
        ("crossing", "points=-5", "points = -5, expected at least 2"),
        ("crossing", "t1=0.5", "t1 = 0.5, expected at least 1"),
        ("crossing", "t1=NaN", "t1 = nan, expected"),
        ("crossing", "t1=Infinity", "t1 = inf, expected"),
        ("crossing", f"t1={10**400}", "t1 = inf, expected"),
        ("crossing", "t1=true", "t1 = True, expected a number, such as 1.0"),
        ("crossing", "points=2.5", "points = 2.5, expected a whole number, such as 201"),
        ("crossing", f"points={'[' * 10_000}", "[…, expected a whole number"),
        ("diagram", "points=0", "at least 2"),
        ("separation", "r1=2", "r1 < r2"),
        ("separation", "outer=0", "outer = 0, expected at least 1"),
        ("spheres", "batch=5000", "batch = 5000, expected at most 3000"),
        ("spheres", "max steps=0", "at least 1"),
        ("spheres", "learning rate=0", "learning_rate = 0.0, expected more than 0"),
        ("spiral", "iterations=-5", "iterations = -5, expected at least 1"),
        ("spiral", f"iterations={2**31}", "at most 2147483647"),
        ("spiral", "sampling=3", "at most 2.5"),
        ("spiral", "biases=1", "expected true or false"),
        ("population", "sampling=1", "at most 0.5"),
        ("mackey-glass", "trajectories=0", "at least 1"),
        ("universal", "widths=[]", "expected a list of whole numbers"),
        ("universal", "widths=[4, 0]", "widths = 0, expected at least 1"),
        ("universal", 'widths=[4, "a"]', "expected a list of whole numbers, such as [4, 8, 16, 32, 64]"),
        ("complexity", "lengths=[2, 1]", "two or more that grow"),
        ("complexity", "lengths=[1]", "two or more that grow"),
        ("images", "epochs=0", "epochs = 0, expected at least 1"),
        ("images", "max steps=-1", "max_steps = -1, expected at least 1"),
        ("images", "limit train=-1", "limit_train = -1, expected at least 0"),
    ],
)
def test_bad_numbers_are_refused_before_anything_is_written(capsys, tmp_path, monkeypatch, name, text, expected):
    monkeypatch.chdir(tmp_path)
    code, printed, error = run(capsys, "reproduce", name, "--set", text)
    assert code == 2 and expected in error and error.count("\n") == 1 and not printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["learning rate", "learning-rate", "learning_rate"])
def test_names_with_spaces_mean_the_same(name):
    """As version 0.1.0 spelt them."""
    config = configure(experiments.load("images"), Options("smoke", numbers={name: "1", "data dir": "17"}))
    assert config.numbers.learning_rate == 1.0 and config.numbers.data_dir == "17"


def test_lists_need_no_brackets():
    for text in ("1,2,4", "[1, 2, 4]"):
        assert configure(experiments.load("complexity"), Options(numbers={"lengths": text})).numbers.lengths == (1, 2, 4)


def test_a_configuration_of_version_0_1_0_is_read():
    """Its names have spaces. One that is not known is said."""
    spiral = experiments.load("spiral")
    config = configure(spiral, Options("smoke")).to_json()
    old = {name.replace("_", " "): value for name, value in config["numbers"].items()}
    assert "max steps" in old
    assert from_json(spiral, config | {"numbers": old}) == configure(spiral, Options("smoke"))
    with pytest.raises(UserError, match=r"its numbers are .*, colour, expected iterations, learning_rate"):
        from_json(spiral, config | {"numbers": old | {"colour": 1}})


def test_presets_are_possible():
    for name in experiments.NAMES:
        for preset in ("smoke", "default", "paper"):
            configure(experiments.load(name), Options(preset))


@pytest.fixture
def failing(out, monkeypatch):
    """Lets runs fail with the errors in this list, one after the other, and then succeed."""
    errors = []
    succeed = trivial().run

    def work(settings):
        if errors:
            raise errors.pop(0)
        return succeed(settings)

    def load(name):
        made = trivial(name)
        return runner.Experiment(made.name, made.title, made.about, made.presets, work)

    monkeypatch.setattr(experiments, "load", load)
    return errors


def test_a_run_that_failed_does_not_trap_resume(capsys, out, failing):
    failing += [KeyboardInterrupt(), UserError("every seed diverged"), ZeroDivisionError("a bug")]
    assert run(capsys, "reproduce", "spiral")[0] == 130
    assert run(capsys, "reproduce", "spiral", "--set", "iterations=7")[0] == 1
    with pytest.raises(ZeroDivisionError):
        cli.main(["reproduce", "spiral", "--set", "iterations=8"])
    interrupted, diverged, broken = _folder.runs(out / "spiral")
    assert _folder.failure(diverged) == "every seed diverged"
    assert _folder.failure(broken) == "ZeroDivisionError: a bug"

    assert run(capsys, "reproduce", "spiral", "--resume")[0] == 0  # the one that was interrupted, although it is the oldest
    assert [_folder.is_finished(folder) for folder in (interrupted, diverged, broken)] == [True, False, False]
    code, _, error = run(capsys, "reproduce", "spiral", "--resume")
    assert code == 1 and f"the one in {broken.relative_to(out.parent)} failed (ZeroDivisionError: a bug)" in error
    assert run(capsys, "reproduce", "--resume", str(broken))[0] == 0
    assert _folder.is_finished(broken) and _folder.failure(broken) is None


def test_a_run_that_the_disk_stopped_goes_on(capsys, out, failing):
    failing += [OSError(28, "No space left on device", "figure.png"), OSError(30, "Read-only file system")]
    code, _, error = run(capsys, "reproduce", "spiral")
    assert (
        code == 1
        and "figure.png cannot be written or read (No space left on device): put" in error
        and error.count("\n") == 1
    )
    code, _, error = run(capsys, "reproduce", "spiral", "--resume")
    assert code == 1 and "a file cannot be written or read (Read-only file system)" in error
    assert run(capsys, "reproduce", "spiral", "--resume")[0] == 0
    assert len(_folder.runs(out / "spiral")) == 1


def test_a_configuration_that_cannot_be_written_leaves_no_folder(capsys, out, monkeypatch):
    def full(file, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_folder, "write_json", full)
    code, _, error = run(capsys, "reproduce", "spiral")
    assert code == 1 and "cannot be written (No space left on device): choose another" in error and error.count("\n") == 1
    assert not list((out / "spiral").iterdir())


def test_a_report_that_could_not_be_written_is_written_on_resumption(capsys, out, failing, monkeypatch):
    def full(folders, file):
        raise OSError(28, "No space left on device", str(file))

    with monkeypatch.context() as patched:
        patched.setattr(runner._execute._report, "write", full)
        code, _, error = run(capsys, "reproduce", "spiral")
        assert code == 1 and "report.html cannot be written" in error and error.count("\n") == 1
    failing += [ZeroDivisionError("nothing is to be computed again")]
    assert run(capsys, "reproduce", "spiral", "--resume")[0] == 0
    (folder,) = _folder.runs(out / "spiral")
    assert _folder.is_finished(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": {"iterations": 10}},
        {"numbers": {"iterations": -1, "rate": 0.5}},
        {"numbers": {"iterations": "x", "rate": 0.5}},
        {"numbers": None},
        {"preset": 5},
        {"seeds": "two"},
        {"seeds": True},
        {"tolerance": "small"},
        {"solver": ["tsit5"]},
    ],
)
def test_an_edited_configuration_is_said(capsys, out, change):
    config = configure(trivial("spiral"), Options()).to_json() | change
    folder = _folder.create(out, "spiral", config)
    code, _, error = run(capsys, "reproduce", "spiral", "--resume")
    assert code == 1 and "is not what this version of lagrax writes" in error and error.count("\n") == 1
    assert json.loads((folder / "config.json").read_text()) == config


def test_the_newest_run_is_the_last_although_the_clock_was_set_back(out, monkeypatch):
    times = iter(["2026-10-25 02:59:59", "2026-10-25 02:00:00", "2026-10-25 02:59:59", "2026-10-25 03:00:00"])

    class Clock:
        @staticmethod
        def now():
            return runner._execute.datetime.fromisoformat(next(times))

    monkeypatch.setattr(_folder, "datetime", Clock)
    made = [_folder.create(out, "spiral", {}) for _ in range(4)]
    assert [folder.name for folder in made] == [
        "2026-10-25_02-59-59",
        "2026-10-25_02-59-59_2",
        "2026-10-25_02-59-59_3",
        "2026-10-25_03-00-00",
    ]
    assert _folder.runs(out / "spiral") == made
    assert _folder.newest_unfinished(out, "spiral") == made[-1]
