"""`lagrax fit` and `lagrax forecast`: what they write, what they say, and what is left when something goes wrong."""

import csv
import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lagrax import cli, series
from lagrax.fitting import _figures, _words
from lagrax.series import Alias, Estimate, Forecast, Holdout, Profile, Samples, Score, SeriesFit, _identify, _search
from lagrax.series._result import LEVELS

PERIOD = 20.0


def run(capsys, *words):
    """Exit code, stdout and stderr of a command."""
    code = cli.main(list(words))
    return code, *capsys.readouterr()


def cycle(count=120, noise=0.05, seed=0):
    """Days and counts of something that goes up and down."""
    t = np.arange(count, dtype=float)
    noisy = np.random.default_rng(seed).normal(0, noise, count)
    return t, np.exp(np.sin(2 * np.pi * t / PERIOD) + noisy)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder to work in, with a file."""
    monkeypatch.chdir(tmp_path)
    t, y = cycle()
    file = tmp_path / "flies.csv"
    file.write_text("day,count,set\n" + "".join(f"{a:g},{b:.5f},4\n" for a, b in zip(t, y, strict=True)))
    return file


ASKED = ("--time", "day", "--value", "count")


def pretended(t, y, *, model=None, horizon=None, progress=None, **settings):
    """A result of the right shapes without any fitting."""
    progress("compiling", None, "nothing")
    t, y = np.asarray(t, float), np.asarray(y, float)
    ahead = t[-1] + np.arange(1, (horizon or 10) + 1)
    fan = Forecast(ahead, LEVELS, np.linspace(0.5, 1.5, len(LEVELS))[:, None, None] * np.ones((1, len(ahead), y.shape[1])))
    scores = {
        "model": Score(0.5, 1.0, 0.9),
        "naive": Score(2.0, 3.0, 0.9),
        "seasonal_naive": None,
        "ar": Score(0.7, 1.0, 0.95),
    }
    profile = Profile("tau", np.linspace(1, 30, 30), 1 + np.abs(np.linspace(1, 30, 30) - 5))
    return SeriesFit(
        kind=model if isinstance(model, str) else "neural",
        delays=(Estimate("tau", 5.0, 4.5, 5.5, "identified", (Alias(20.0, "period"),)),),
        parameters=(Estimate("r", 0.3, 0.2, 0.4),),
        holdout=Holdout(10, 3, scores),
        chosen="model",
        forecasts={"model": fan},
        fitted=y * 1.01,
        residuals=-0.01 * y,
        profiles=(profile,),
        model=None,
        samples=Samples(t, y, None, ("count",), (), "", (("", 0, len(t)),)),
        settings={"transform": "log"},
        notes=("A note.",),
        forecasters={},
    )


@pytest.fixture
def pretend(monkeypatch):
    monkeypatch.setattr(series, "fit_series", pretended)


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take most of the time."""
    monkeypatch.setattr(_figures, "draw", lambda *_: [])


def test_help_and_mistakes_need_no_jax():
    words = "main(['fit', '--help']); main(['fit', 'no.csv'])"
    code = f"import sys; from lagrax.cli import main; {words}; assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--delay-bounds" in done.stdout and "no.csv does not exist" in done.stderr


@pytest.mark.parametrize(
    "words, part",
    [
        ((), "which file?"),
        (("nothing.csv",), "does not exist"),
        (("flies.csv", *ASKED, "--model", "nicolson"), "did you mean nicholson?"),
        (("flies.csv", *ASKED, "--model", "file.py"), "expected file.py:name"),
        (("flies.csv", *ASKED, "--model", "no.py:field"), "there is no file no.py"),
        (("flies.csv", *ASKED, "--horizon", "0"), "a whole number from 1"),
        (("flies.csv", *ASKED, "--delay-bounds", "9:2"), "LOW:HIGH"),
        (("flies.csv", *ASKED, "--delays", "6"), "from 1 to 5"),
        (("flies.csv", *ASKED, "--holdout", "1.5"), "a share of the record"),
        (("flies.csv", *ASKED, "--transform", "ln"), "transform"),
        (("flies.csv", *ASKED, "--param", "r=x"), "NAME=START"),
        (("flies.csv", "--time", "day", "--value", "cuont"), "did you mean count?"),
        (("--resume",), "no unfinished fit"),
        (("--resume", "elsewhere"), "no unfinished fit"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(capsys, data, words, part):
    before = set(data.parent.rglob("*"))
    code, printed, error = run(capsys, "fit", *words)
    assert code in (1, 2) and part in error and error.startswith("lagrax: ") and error.count("\n") == 1
    assert not printed and set(data.parent.rglob("*")) == before


BROKEN_MODELS = {
    "raises": ("def field(t, y, delayed, params):\n    return y / missing\n", "line 2 raised NameError: name 'missing'"),
    "wrong shape": ("def field(t, y, delayed, params):\n    return [y, y]\n", "returned (1,), (1,), expected"),
    "wrong size": ("import jax.numpy as jnp\ndef field(t, y, z, p):\n    return jnp.ones(3)\n", "returned (3,), expected"),
    "too few arguments": ("def field(t, y):\n    return y\n", "takes 2 arguments, expected (t, y, delayed, params)"),
    "no function": ("field = 3\n", "is int, expected a function"),
    "another name": ("def feild(t, y, delayed, params):\n    return y\n", "did you mean feild?"),
    "no Python": ("def field(:\n", "line 1 raised SyntaxError"),
    "raises at once": ("import nowhere\n", "line 1 raised ModuleNotFoundError"),
    "leaves": ("import sys\nsys.exit(3)\n", "line 2 raised SystemExit: 3"),
    "NumPy": ("import numpy as np\ndef field(t, y, z, p):\n    return np.exp(y)\n", "line 3 raised TracerArrayConversion"),
    "if": ("def field(t, y, z, p):\n    return y if y[0] > 1 else z\n", "write jnp.exp for np.exp and jnp.where for if"),
    "a start": ("params = {'r': 'x'}\ndef field(t, y, z, p):\n    return p['r'] * y\n", "params has r = 'x', expected"),
    "params": ("params = 3\ndef field(t, y, delayed, params):\n    return y\n", "expected params, a dict"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_MODELS)
def test_a_model_that_fails_is_shown_as_the_users(capsys, data, pretend, name):
    text, part = BROKEN_MODELS[name]
    (data.parent / "own.py").write_text(text)
    before = set(data.parent.rglob("*"))
    code, _, error = run(capsys, "fit", "flies.csv", *ASKED, "--model", "own.py:field", "--out", "out")
    assert code in (1, 2) and error.startswith("lagrax: ") and part in error and error.count("\n") == 1
    assert {file for file in set(data.parent.rglob("*")) - before if "__pycache__" not in str(file)} == set()


def test_parameters_are_found_and_given_starts(capsys, data, monkeypatch, undrawn):
    seen = {}

    def noting(t, y, **settings):
        seen.update(settings)
        return pretended(t, y, **{**settings, "model": None})

    monkeypatch.setattr(series, "fit_series", noting)
    text = "params = {'r': (0.5, 0, 9)}\ndef field(t, y, z, params):\n    return params['r'] * y - params['s'] * z\n"
    (data.parent / "own.py").write_text(text)
    code, *_ = run(
        capsys, "fit", "flies.csv", *ASKED, "--model", "own.py:field", "--param", "r=2:1:3", "--delay-bounds", "2:28"
    )
    assert code == 0
    assert seen["params"] == {"r": [2, 1, 3], "s": 1.0} and seen["delay_bounds"] == (2, 28)
    assert seen["model"](0.0, 2.0, 3.0, {"r": 5.0, "s": 1.0}) == 7.0


def test_everything_is_written_and_says_the_same(capsys, data, pretend):
    words = ("fit", "flies.csv", *ASKED, "--where", "set=4", "--model", "nicholson", "--out", "out")
    code, text, _ = run(capsys, *words)
    assert code == 0
    out = data.parent / "out"
    assert text.startswith("The Nicholson model forecasts best: 0.50 against an autoregression 0.70")
    told = " ".join(text.split())
    assert "τ = 5 days (95 %: 4.5 to 5.5), identified" in told and "20 (the period" in told
    assert text.rstrip().endswith(os.path.join("out", "report.html"))

    found = json.loads((out / "fit.json").read_text())
    check_schema(found)
    assert found["delays"][0]["aliases"] == [{"value": 20.0, "kind": "period"}] and found["data"]["unit"] == "days"
    rows = list(csv.DictReader((out / "forecast.csv").read_text().splitlines()))
    assert len(rows) == 10 and float(rows[0]["time"]) == 120 and float(rows[0]["count_0.5"]) == 1.0

    page = html.unescape((out / "report.html").read_text())
    first = re.search(r'<p class="lead">(.*?)</p>', page)[1]
    assert first.startswith("The Nicholson model forecasts best")
    for stem in ("forecast", "fit", "profile", "phase", "autocorrelation", "quantiles"):
        assert (out / f"{stem}.png").exists() and f'<a href="{stem}.png">' in page
    assert "<script" not in page and "http" not in re.sub(r'base64,[^"]*', "", page)

    code, _, error = run(capsys, *words)
    assert code == 1 and "holds a fit already" in error
    code, _, error = run(capsys, "fit", "--resume", "out")
    assert code == 1 and "is finished" in error


def test_an_interval_of_one_delay_among_several_says_so():
    several = Estimate("tau", 11.4, 11.1, 11.6, "predictive only", (Alias(2.9, "embedding"),))
    alone = Estimate("tau", 11.4, 11.1, 11.6, "predictive only")
    assert _words.interval(several, neural=False) == "95 % if it is this one: 11.1 to 11.6"
    assert _words.interval(alone, neural=False) == "95 %: 11.1 to 11.6"


def check_schema(found):
    """What programs rely on."""
    number = lambda value: value is None or isinstance(value, int | float)
    for estimate in [*found["delays"], *found["parameters"]]:
        assert set(estimate) == {"name", "estimate", "low", "high", "verdict", "aliases"}
        assert isinstance(estimate["name"], str) and all(number(estimate[key]) for key in ("estimate", "low", "high"))
        assert all(set(alias) == {"value", "kind"} for alias in estimate["aliases"])
    assert all(delay["verdict"] in ("identified", "predictive only", "at bound") for delay in found["delays"])
    assert set(found["holdout"]) == {"model", "naive", "seasonal_naive", "ar", "horizon", "origins"}
    for method in ("model", "naive", "seasonal_naive", "ar"):
        score = found["holdout"][method]
        assert score is None or (set(score) == {"mase", "rmse", "coverage95"} and all(map(number, score.values())))
    assert found["chosen"] in ("model", "naive", "seasonal_naive", "ar")
    assert found["holdout"][found["chosen"]] is not None
    assert re.fullmatch("[0-9a-f]{64}", found["data"]["checksum"]) and re.fullmatch(
        "[0-9a-f]{64}", found["data"]["file_checksum"]
    )
    assert re.fullmatch("[0-9a-f]{64}", found["settings"]["checksum"])


def test_what_was_interrupted_is_gone_on_with(capsys, data, monkeypatch, undrawn):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(series, "fit_series", stopped)
    code, _, error = run(capsys, "fit", "flies.csv", *ASKED, "--horizon", "7")
    assert code == 130
    (folder,) = (data.parent / "runs" / "fit").iterdir()
    assert f"lagrax fit --resume {folder.relative_to(data.parent)}" in error

    monkeypatch.setattr(series, "fit_series", pretended)
    code, _, error = run(capsys, "fit", "--resume", "--horizon", "8")
    assert code == 1 and "horizon = 7, not 8" in error
    content = data.read_text()
    data.write_text(content + "500,1,4\n")
    code, _, error = run(capsys, "fit", "--resume")
    assert code == 1 and "has changed since" in error
    data.write_text(content)
    code, text, _ = run(capsys, "fit", "--resume")
    assert code == 0 and str(folder.relative_to(data.parent) / "report.html") in text
    assert len((folder / "forecast.csv").read_text().splitlines()) == 8


def test_a_failure_does_not_trap(capsys, data, monkeypatch):
    def fails(*_, **__):
        raise ValueError("the record is too short, expected 12 samples: measure more")

    monkeypatch.setattr(series, "fit_series", fails)
    code, _, error = run(capsys, "fit", "flies.csv", *ASKED)
    assert code == 1 and "lagrax: the record is too short" in error
    (folder,) = (data.parent / "runs" / "fit").iterdir()
    assert [file.name for file in folder.iterdir()] == ["log.txt"] and "too short" in (folder / "log.txt").read_text()
    code, _, error = run(capsys, "fit", "--resume")
    assert code == 1 and "no unfinished fit" in error


def test_two_fits_do_not_share_a_folder(capsys, data, pretend):
    from lagrax.saving._files import sole_writer

    (data.parent / "out").mkdir()
    with sole_writer(data.parent / "out"):
        code, _, error = run(capsys, "fit", "flies.csv", *ASKED, "--out", "out")
        assert code == 1 and "another process is writing into out" in error
    (data.parent / "taken").write_text("")
    code, _, error = run(capsys, "fit", "flies.csv", *ASKED, "--out", "taken")
    assert code == 1 and "a file is in the way" in error
    (data.parent / "full").mkdir()
    (data.parent / "full" / "report.html").write_text("mine")
    code, _, error = run(capsys, "fit", "flies.csv", *ASKED, "--out", "full")
    assert code == 1 and "has a file report.html already" in error
    assert (data.parent / "full" / "report.html").read_text() == "mine"


KILLED = """
import dataclasses, sys, time
from lagrax import series
from lagrax.series import Holdout
from tests.test_fit_cli import pretended
def waits(t, y, **settings):
    known = pretended(t, y, **settings)
    settings["partial"](dataclasses.replace(known, missing=("bootstrap", "forecast"), chosen="ar",
        forecasts={"ar": known.forecast}, holdout=Holdout(10, 3, {**known.holdout.scores, "model": None})))
    open("started", "w").close()
    time.sleep(60)
series.fit_series = waits
from lagrax.cli import command
sys.argv = ["lagrax", "fit", "flies.csv", "--time", "day", "--value", "count", "--out", "out"]
command()
"""


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_killed_fits_leave_what_there_is_and_can_be_resumed(capsys, data, pretend, undrawn, number, code):
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen([sys.executable, "-c", KILLED], stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 60
    while not (data.parent / "started").exists():
        assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(number)
    if number == signal.SIGTERM:  # twice in a row, as `timeout` does
        time.sleep(0.05)
        process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == code
    assert ("To go on: lagrax fit --resume out" in error) == (code == 130)
    out = data.parent / "out"
    if code == 130:
        found = json.loads((out / "fit.json").read_text())
        assert found["missing"] == ["bootstrap", "forecast"] and found["holdout"]["model"] is None
        page = html.unescape((out / "report.html").read_text())
        lead = re.search(r'<p class="lead">(.*?)</p>', page)[1]
        assert lead.startswith("This fit was interrupted, and the intervals and the forecast of the model are missing")
        assert (out / "forecast.csv").exists() and "lagrax fit --resume out" in page
        _, _, error = run(capsys, "forecast", "out", "--horizon", "5")
        assert "is not finished" in error
        _, _, error = run(capsys, "fit", str(data), *ASKED, "--out", "out")
        assert "go on with --resume out" in error
    assert run(capsys, "fit", "--resume", "out")[0] == 0
    assert json.loads((out / "fit.json").read_text())["missing"] == [] and not (out / "stages.lagrax").exists()


def population(count):
    """A noisy population with a delay of 9 days: r N (1 - N(t - 9)/K)."""
    delay, steps = 9.0, 20
    past = int(delay * steps)
    n = np.full(past + 1 + (count + 100) * steps, 50.0)
    for i in range(past, len(n) - 1):  # Euler's method, far finer than the noise
        n[i + 1] = n[i] + 0.2 / steps * n[i] * (1 - n[i - past] / 100)
    noise = np.random.default_rng(0).normal(0, 0.05, count)
    return n[past + 100 * steps :: steps][:count] * np.exp(noise)


def test_a_delay_from_a_table_to_the_report(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [monkeypatch.setattr(*each) for each in ((_search, "LANES", 6), (_identify, "REPLICATES", 18), (_identify, "GRID", 12))]
    days = zip(np.datetime64("2021-03-01") + np.arange(120), population(120), strict=True)
    rows_of_days = [f"{day};{n:.2f}".replace(".", ",") for day, n in days]
    (tmp_path / "flies.csv").write_text("date;count\n" + "\n".join(rows_of_days))
    own = (
        "params = {'r': (0.5, 0, 5), 'K': (50, 0, 1000)}\ndef field(t, y, z, p):\n    return p['r'] * y * (1 - z / p['K'])\n"
    )
    (tmp_path / "own.py").write_text(own)
    words = ("--time", "date", "--value", "count", "--model", "own.py:field", "--horizon", "12", "--transform", "log")
    code, text, _ = run(capsys, "fit", "flies.csv", *words, "--out", "out")
    assert code == 0 and "days" in text
    found = json.loads((tmp_path / "out" / "fit.json").read_text())
    check_schema(found)
    (delay,) = found["delays"]
    assert (
        abs(delay["estimate"] - 9) < 0.5 and delay["low"] < 9.2 and delay["high"] > 8.8 and delay["verdict"] == "identified"
    )
    assert {estimate["name"] for estimate in found["parameters"]} == {"r", "K"}
    assert found["settings"]["horizon"] == 12

    code, text, _ = run(capsys, "forecast", "out", "--horizon", "30")
    assert code == 0 and text.startswith(("By the model, 30 samples ahead.", "By an autoregression, 30 samples ahead."))
    rows = list(csv.DictReader((tmp_path / "out" / "forecast-30.csv").read_text().splitlines()))
    assert len(rows) == 30 and rows[0]["date"] == "2021-06-29" and (tmp_path / "out" / "forecast-30.png").exists()
    first = list(csv.DictReader((tmp_path / "out" / "forecast.csv").read_text().splitlines()))
    assert float(rows[11]["count_0.5"]) == pytest.approx(float(first[11]["count_0.5"]), rel=1e-3)
    (tmp_path / "flies.csv").write_text("date;count\n" + "\n".join(rows_of_days[:-1]))
    code, _, error = run(capsys, "forecast", "out", "--horizon", "30")
    assert code == 1 and "flies.csv has changed since the fit in out was started: fit it again" in error


def test_too_short_for_a_network(capsys, data):
    data.write_text("\n".join(data.read_text().splitlines()[:22]))
    code, text, _ = run(capsys, "fit", "flies.csv", *ASKED, "--horizon", "4", "--out", "out")
    assert code == 0 and "was refused" in text
    found = json.loads((data.parent / "out" / "fit.json").read_text())
    check_schema(found)
    assert found["holdout"]["model"] is None and found["chosen"] != "model" and found["delays"] == []
    assert len((data.parent / "out" / "forecast.csv").read_text().splitlines()) == 5
    code, _, error = run(capsys, "forecast", "out", "--horizon", "9", "--method", "model")
    assert code == 1 and "no forecast by model" in error
    assert run(capsys, "forecast", "out", "--horizon", "9", "--method", "ar", "--to", "ar.csv")[0] == 0
    assert len((data.parent / "ar.csv").read_text().splitlines()) == 10 and (data.parent / "ar.png").exists()


@pytest.mark.parametrize(
    "words, part",
    [
        (("--horizon", "5"), "which fit?"),
        (("nowhere", "--horizon", "5"), "not a folder"),
        ((".", "--horizon", "5"), "holds no fit.json"),
        ((".", "--horizon", "5", "--method", "arr"), "did you mean ar?"),
        (((".",)), "--horizon"),
    ],
)
def test_forecasts_of_nothing(capsys, data, words, part):
    code, _, error = run(capsys, "forecast", *words)
    assert code in (1, 2) and part in error and error.count("\n") == 1
