"""Training that is stopped and goes on, in a process of its own where it has to be killed."""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from lagrax.train import fit, stack
from lagrax.train._checkpoint import read
from lagrax.train._schedule import interruptible

from .test_train_fit import metrics, same
from .train_problem import Line, data, loss, optimizer

ROOT = pathlib.Path(__file__).parent.parent
SCRIPT = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
from tests.test_train_resume import train
print(train(sys.argv[1], 10**7, resume=False).ended, flush=True)
"""


def train(folder, iterations, resume, **options):
    """Two seeds, batches, a noisy loss and snapshots: all that a resumption could get wrong."""
    settings = {"key": jr.key(1), "batch_size": 4, "stacked": True, "snapshots": 20, "checkpoint_every": 30, "chunk": 7}
    model = stack([Line(jr.key(i)) for i in range(2)])
    settings |= {"folder": folder, "resume": resume, "progress": False} | options
    return fit(model, loss, data(), optimizer, iterations, **settings)


def start(folder):
    """A run in a process of its own, once it has done some hundred iterations."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **cache}, stdout=subprocess.PIPE, text=True)
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") > 200):
        time.sleep(0.01)
    assert process.poll() is None
    return process


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def check_equal(folder, resumed):
    """The resumed run against one that was never stopped, and against its own file of metrics."""
    straight = train(folder / "straight", resumed.iterations, resume=False, chunk=None, checkpoint_every=None)
    assert same(resumed.model, straight.model) and same(metrics(resumed), metrics(straight))
    assert same(resumed.snapshots, straight.snapshots)
    assert resumed.snapshot_iterations.tolist() == straight.snapshot_iterations.tolist()
    rows = lines(folder)
    assert [row["iteration"] for row in rows] == list(range(resumed.iterations))
    for name in resumed.history:
        np.testing.assert_array_equal([row[name] for row in rows], resumed.history[name])


def test_killed_and_resumed(tmp_path):
    process = start(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    written = (tmp_path / "metrics.jsonl").read_bytes().count(b"\n")
    assert written - 30 <= read(str(tmp_path)).iteration <= written
    resumed = train(tmp_path, written + 50, resume=True)
    assert resumed.ended == "finished" and resumed.iterations == written + 50
    check_equal(tmp_path, resumed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_resumed(tmp_path, number):
    process = start(tmp_path)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert output.strip() == "interrupted" and process.returncode == 0
    done = len(lines(tmp_path))
    resumed = train(tmp_path, done + 50, resume=True)
    assert resumed.history["loss"].shape == (done + 50, 2)
    check_equal(tmp_path, resumed)


def test_interrupted_here(tmp_path):
    """Without a process of its own: whatever handled Ctrl-C before does so again afterwards."""
    before = signal.getsignal(signal.SIGINT)

    def press():
        while not (tmp_path / "metrics.jsonl").exists() or not (tmp_path / "metrics.jsonl").stat().st_size:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    result = train(tmp_path, 10**7, resume=False)
    thread.join()
    assert result.ended == "interrupted" and 0 < result.iterations < 10**7
    assert signal.getsignal(signal.SIGINT) is before


def test_second_signal_stops_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGTERM)
        assert interrupted()
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_in_another_thread():
    """Where signals cannot be handled, training goes on without."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, None, 5, False).result().ended == "finished"


def test_resuming_a_finished_run(tmp_path):
    first = train(tmp_path, 40, resume=True)  # nothing to resume: it starts
    again = train(tmp_path, 40, resume=True)
    assert again.ended == "finished" and again.seconds == first.seconds
    assert same(first.model, again.model) and same(first.history, again.history)
    check_equal(tmp_path, train(tmp_path, 70, resume=True))


def test_resuming_a_diverged_run(tmp_path):
    value = lambda model, batch, key: (jnp.where(model >= 3, jnp.nan, -model), {})
    run = lambda: fit(
        jnp.zeros(()), value, None, optax.sgd(1.0), 9, key=jr.key(0), folder=tmp_path, resume=True, progress=False
    )
    first, again = run(), run()
    assert first.ended == again.ended == "diverged" and again.diverged == 3 and again.iterations == 4
    assert [row["loss"] for row in lines(tmp_path)] == [0, -1, -2, None]
    assert again.model == 3 and again.best == 2
