"""The command as a process: signals, and files and folders that cannot be written."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lagrax import cli
from lagrax.runner import Options, _folder, configure
from lagrax.saving._files import sole_writer

from .test_cli import out as out
from .test_cli import run, trivial

PAUSE = """if True:
    import dataclasses, sys, time
    import jax, numpy
    from lagrax import cli, experiments
    from lagrax.runner import Experiment, Numbers, Outcome, Preset, number

    @dataclasses.dataclass(frozen=True)
    class Where(Numbers):
        where: str = number("nowhere", "where to wait")

    def work(settings):
        def wait(x):
            print("compiling" if isinstance(x, jax.core.Tracer) else "computing", flush=True)
            for _ in range(600):
                try:
                    time.sleep(0.1)
                except KeyboardInterrupt:
                    pass  # as JAX does with an exception in one of its callbacks
            return x

        where = settings.numbers.where
        if where == "compiling":
            jax.jit(wait)(1.0)
        elif where == "computing":
            jax.jit(lambda x: jax.pure_callback(wait, x, x))(1.0).block_until_ready()
        return Outcome({}, [], [], [])

    presets = dict.fromkeys(("smoke", "default", "paper"), Preset(Where()))
    experiments.load = lambda name: Experiment(name, "Title", "About.", presets, work)
    cli.command()
"""


def start(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-c", PAUSE, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("where, number", [("compiling", signal.SIGINT), ("computing", signal.SIGTERM)])
def test_signals_end_it_at_once_and_say_how_to_go_on(tmp_path, where, number):
    process = start(tmp_path, "reproduce", "crossing", "--set", f"where={where}")
    assert process.stdout.readline() == f"{where}\n"
    begin = time.monotonic()
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - begin < 10
    assert error == (
        f"\nlagrax: interrupted; what was saved is kept. To go on: lagrax reproduce crossing --resume --set where={where}\n"
    )
    (folder,) = _folder.runs(tmp_path / "runs" / "crossing")
    assert os.listdir(folder) == ["config.json"] and _folder.newest_unfinished(tmp_path / "runs", "crossing") == folder


def test_two_writers_of_one_run(capsys, out):
    folder = _folder.create(out, "spiral", configure(trivial("spiral"), Options()).to_json())
    with sole_writer(folder):
        code, _, error = run(capsys, "reproduce", "spiral", "--resume")
        assert code == 1 and "another process is writing into " in error and error.count("\n") == 1
        assert os.listdir(folder) == ["config.json"]
    assert run(capsys, "reproduce", "spiral", "--resume")[0] == 0


def test_output_that_cannot_be_written(capsys, out, monkeypatch):
    """A full disk, or a pager that was left."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no device that is always full")
    with full.open("wb", buffering=0) as device:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(device, write_through=True))
        code = cli.main(["list"])
    monkeypatch.undo()
    assert code == 1
    assert capsys.readouterr().err == "lagrax: the output cannot be read or written (No space left on device)\n"


@pytest.mark.parametrize("name", ["with spaces", "ünïcode – 時間", "-", "a'b\"c", "*[a]"])
def test_folders_with_any_name(capsys, out, name):
    place = out.parent / name
    assert run(capsys, "reproduce", "crossing", "spiral", "--out", f"./{name}")[0] == 0
    assert run(capsys, "report", f"./{name}", "--to", f"./{name}/{name}.html")[0] == 0
    assert {path.name for path in place.iterdir()} == {"crossing", "spiral", "report.html", f"{name}.html"}
    assert len(_folder.runs(place / "spiral")) == 1


@pytest.mark.parametrize("given, blocked", [("file", "file"), ("file/below", "file"), ("runs", "runs/crossing")])
def test_a_file_where_a_folder_is_expected(capsys, out, given, blocked):
    out.mkdir()
    file = out.parent / blocked
    file.write_text("content")
    code, _, error = run(capsys, "reproduce", "crossing", "--out", given)
    assert code == 1 and error.startswith("lagrax: ") and "--out" in error and error.count("\n") == 1
    assert file.read_text() == "content"
