"""The command line: what it understands, what it says when it does not."""

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from lagrax import cli, experiments, runner
from lagrax.runner import (
    Experiment,
    Numbers,
    Options,
    Outcome,
    Preset,
    Table,
    UserError,
    _execute,
    _folder,
    configure,
    number,
)


def run(capsys, *words):
    """Exit code, stdout and stderr of a command."""
    try:
        code = cli.main(list(words))
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


@dataclasses.dataclass(frozen=True)
class TrivialNumbers(Numbers):
    iterations: int = number(10, "how many")
    rate: float = number(0.5, "how much")


def trivial(name="crossing", interrupt=False, **options):
    """An experiment that takes no time, or that is interrupted unless it resumes."""

    def work(settings):
        if interrupt and not settings.resume:
            raise KeyboardInterrupt
        table = Table("Numbers", ("what", "value"), [("iterations", str(settings.numbers.iterations))])
        return Outcome({"resumed": settings.resume}, [], [], [table])

    presets = {preset: Preset(TrivialNumbers()) for preset in ("smoke", "default", "paper")}
    return Experiment(name, "A title", "About it.", presets, work, **options)


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A folder for results, with experiments that take no time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(experiments, "load", lambda name: trivial(name))
    return tmp_path / "runs"


def test_help_reads_well(capsys):
    code, text, _ = run(capsys, "--help")
    assert code == 0 and "lagrax reproduce spiral" in text and "report" in text
    code, text, _ = run(capsys, "reproduce", "--help")
    assert code == 0
    for option in ("--preset", "--seeds", "--out", "--resume", "--adjoint", "--solver", "--tolerance", "--set"):
        assert option in text


def test_module_runs():
    done = subprocess.run([sys.executable, "-m", "lagrax", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("lagrax ")


def test_list_names_every_experiment(capsys):
    code, text, _ = run(capsys, "list")
    assert code == 0
    for name in experiments.NAMES:
        assert f"\n{name} " in f"\n{text}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    "words, expected",
    [
        (["re"], {"reproduce", "report"}),
        (["reproduce", "mack"], {"mackey-glass"}),
        (["reproduce", "spiral", "--preset", "s"], {"smoke"}),
        (["reproduce", "--ad"], {"--adjoint"}),
    ],
)
def test_a_shell_completes_words(capsys, words, expected):
    _, script, _ = run(capsys, "completion", "bash")
    line = " ".join(shlex.quote(word) for word in ["lagrax", *words])
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _lagrax; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected


def test_list_shows_durations_and_numbers(capsys):
    _, text, _ = run(capsys, "list")
    assert "smoke: 20 s, default: 30 s" in text
    code, text, _ = run(capsys, "list", "images", "spiral")
    assert code == 0 and max(map(len, text.splitlines())) <= 100
    rows = [line.split() for line in text.splitlines()]
    assert ["iterations", "40", "2000", "5000", "updates", "of", "Adam"] in rows
    assert any(row[:5] == ["limit_train", "128", "0", "10000", "0"] for row in rows)


@pytest.mark.parametrize(
    "words, part",
    [
        (("reproduce", "spirl"), "did you mean spiral?"),
        (("reproduce", "mackey_glass"), "did you mean mackey-glass?"),
        (("reprodce", "spiral"), "did you mean reproduce?"),
        (("reproduce",), "which experiment?"),
        (("reproduce", "crossing", "--preset", "smok"), "did you mean smoke?"),
        (("reproduce", "crossing", "--adjoint", "discret"), "did you mean discrete?"),
        (("reproduce", "crossing", "--solver", "dopri"), "did you mean dopri"),
        (("reproduce", "crossing", "--seeds", "0"), "at least 1"),
        (("reproduce", "crossing", "--seeds", "two"), "--seeds"),
        (("reproduce", "crossing", "--tolerance", "-1"), "tolerance"),
        (("reproduce", "crossing", "--tolerance", "1e-12"), "single precision"),
        (("reproduce", "crossing", "--tolerance", "nan"), "tolerance"),
        (("reproduce", "crossing", "--set", "iteration=3"), "did you mean iterations?"),
        (("reproduce", "crossing", "--set", "iterations=many"), "expected a whole number"),
        (("reproduce", "crossing", "--set", "iterations"), "NAME=VALUE"),
        (("reproduce", "crossing", "--resume"), "no unfinished run"),
        (("reproduce", "crossing", "--resume", "elsewhere"), "holds no config.json"),
        (("report",), "no finished run"),
        (("reproduce", "crossing", "spiral", "--seeds", "0"), "at least 1"),
    ],
)
def test_errors_are_one_sentence_and_write_nothing(capsys, out, words, part):
    code, printed, error = run(capsys, *words)
    assert code in (1, 2)
    assert part in error and error.startswith("lagrax: ") and error.count("\n") == 1
    assert not printed and not out.exists()


def test_reproduce_prints_and_writes(capsys, out):
    code, text, _ = run(capsys, "reproduce", "crossing", "spiral", "--set", "iterations=7", "--set", "rate=1")
    assert code == 0
    assert "iterations  7" in text and text.rstrip().endswith(f"All of them: {os.path.join('runs', 'report.html')}")
    (folder,) = _folder.runs(out / "spiral")
    config = json.loads((folder / "config.json").read_text())
    assert config["numbers"] == {"iterations": 7, "rate": 1.0} and config["versions"]["jax"]
    assert json.loads((folder / "metrics.json").read_text()) == {"resumed": False}
    assert "A title" in (folder / "report.html").read_text()


def test_folder_that_cannot_be_written(capsys, out):
    out.write_text("a file, not a folder")
    code, _, error = run(capsys, "reproduce", "crossing")
    assert code == 1 and "choose another" in error and error.count("\n") == 1
    assert out.read_text() == "a file, not a folder"


def test_an_existing_run_is_not_overwritten(tmp_path, monkeypatch):
    class Frozen:
        @staticmethod
        def now():
            return _execute.datetime(2021, 5, 3)

    monkeypatch.setattr(_folder, "datetime", Frozen)
    made = [_folder.create(tmp_path, "crossing", {"number": i}) for i in range(11)]
    assert _folder.runs(tmp_path / "crossing") == made
    assert [json.loads((folder / "config.json").read_text())["number"] for folder in made] == list(range(11))


def test_ctrl_c_says_how_to_go_on_and_resume_does(capsys, out, monkeypatch):
    monkeypatch.setattr(experiments, "load", lambda name: trivial(name, interrupt=name == "spiral"))
    words = ("reproduce", "crossing", "spiral", "universal", "--preset", "smoke", "--set", "iterations=3")
    code, _, error = run(capsys, *words)
    assert code == 130
    command = error.split("To go on: ")[1].split()
    assert shlex.join(command) == "lagrax reproduce spiral universal --resume --preset smoke --set iterations=3"
    (folder,) = _folder.runs(out / "spiral")
    assert not _folder.is_finished(folder)

    code, _, error = run(capsys, "reproduce", "spiral", "--resume", "--seeds", "9")
    assert code == 1 and "seeds = 1, not 9" in error
    code, _, error = run(capsys, "reproduce", "crossing", "--resume", str(folder))
    assert code == 1 and "a run of spiral" in error

    code, _, _ = run(capsys, *command[1:])
    assert code == 0 and json.loads((folder / "metrics.json").read_text()) == {"resumed": True}
    assert len(_folder.runs(out / "spiral")) == len(_folder.runs(out / "universal")) == 1
    code, _, error = run(capsys, "reproduce", "--resume", str(folder))
    assert code == 1 and "is finished" in error


def test_resume_takes_a_name_too(out):
    folder = _folder.create(out, "spiral", configure(trivial("spiral"), Options()).to_json())
    assert runner.plan([], "spiral", out) == (["spiral"], {"spiral": folder})
    assert runner.plan([], str(folder), out) == (["spiral"], {"spiral": folder})


@pytest.mark.parametrize("text", ["{", "[]", '{"experiment": "spiral"}'])
def test_a_corrupt_configuration_is_said(capsys, out, text):
    folder = _folder.create(out, "spiral", {})
    (folder / "config.json").write_text(text)
    code, _, error = run(capsys, "reproduce", "spiral", "--resume")
    assert code == 1 and "config.json" in error and error.count("\n") == 1


def test_options_replace_the_preset():
    options = Options("smoke", 3, "piecewise", "dopri8", 1e-5, {"iterations": "4"})
    config = configure(trivial(), options)
    assert (config.seeds, config.adjoint, config.solver, config.tolerance) == (3, "piecewise", "dopri8", 1e-5)
    config.check_same(options)
    with pytest.raises(UserError, match="iterations = 4, not 5"):
        config.check_same(Options(numbers={"iterations": "5"}))
    assert configure(trivial(x64=True), Options(tolerance=1e-12)).tolerance == 1e-12


def test_a_checkpoint_that_cannot_be_read_is_said(tmp_path):
    from lagrax.train import CheckpointError

    def fail(settings):
        raise CheckpointError("the checkpoint cannot be read")

    broken = Experiment("crossing", "A title", "About it.", trivial().presets, fail)
    with pytest.raises(UserError, match="cannot be read"):
        runner.start(broken, tmp_path, Options())
