"""Training in two processes that talk to each other over the network of this machine."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from lagrax.train._checkpoint import read

from .train_problem import data
from .train_processes import numbers, train

ROOT = pathlib.Path(__file__).parent.parent
SECONDS = 120  # that a pair of processes may take


@contextlib.contextmanager
def pair(job, folder):
    """Two processes that do a job of `train_processes.py`; none of them survives the block."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    cache = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2"}
    processes = []
    try:
        for index in "01":
            command = [sys.executable, "-m", "tests.train_processes", job, index, str(port), str(folder)]
            with open(folder / f"{job}{index}.txt", "w") as output:
                processes.append(
                    subprocess.Popen(command, cwd=ROOT, env={**os.environ, **cache}, stdout=output, stderr=output)
                )
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def finish(job, folder):
    """A job from beginning to end. If one process fails the other may wait for it, which need not be waited for."""
    end = time.monotonic() + SECONDS
    with pair(job, folder) as processes:
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            if any(process.poll() for process in processes):
                end = min(end, time.monotonic() + 5)
            time.sleep(0.05)
        codes = [process.poll() for process in processes]
    assert codes == [0, 0], "\n".join((folder / f"{job}{index}.txt").read_text()[-3000:] for index in "01")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_two_processes_equal_one(tmp_path):
    finish("straight", tmp_path)
    for name, batch_size in {"replicated": 8, "sharded": 8, "full": None}.items():
        one = numbers(train(data(20), 20, batch_size=batch_size))
        first, second = (np.load(tmp_path / f"{name}{index}.npz") for index in "01")
        for column in one:
            np.testing.assert_array_equal(first[column], second[column])
            if column != "seconds":
                np.testing.assert_allclose(first[column], one[column], rtol=1e-10)
        rows = lines(tmp_path / "disk0" / name / "metrics.jsonl")
        assert [row["loss"] for row in rows if "loss" in row] == first["loss"].tolist()
    assert not (tmp_path / "disk1").exists()


def test_signal_to_one_stops_both(tmp_path):
    finish("stopped", tmp_path)
    whole = np.load(tmp_path / "whole0.npz")
    np.testing.assert_allclose(whole["loss"], train(data(20), 20).history["loss"], rtol=1e-10)
    assert (np.diff(whole["seconds"]) >= 0).all()
    np.testing.assert_array_equal(whole["seconds"], np.load(tmp_path / "whole1.npz")["seconds"])
    assert not (tmp_path / "disk1").exists()


@pytest.mark.slow
def test_errors_reach_both(tmp_path):
    finish("errors", tmp_path)


@pytest.mark.slow
def test_killed_and_resumed(tmp_path):
    metrics = tmp_path / "disk0" / "metrics.jsonl"
    end = time.monotonic() + SECONDS
    with pair("endless", tmp_path) as processes:
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 100):
            assert all(process.poll() is None for process in processes) and time.monotonic() < end
            time.sleep(0.01)
    at = read(str(tmp_path / "disk0")).iteration
    assert at >= 40
    (tmp_path / "iterations").write_text(str(at + 30))
    finish("resumed", tmp_path)
    rows = lines(metrics)
    assert [row["iteration"] for row in rows if "loss" in row] == list(range(at + 30))
    assert [row["iteration"] for row in rows if "evaluation" in row] == list(range(0, at + 31, 4))
    # One process goes on where two have stopped, with one device in place of four.
    alone = train(data(20), at + 40, folder=tmp_path / "disk0", resume=True)
    np.testing.assert_allclose(alone.history["loss"], train(data(20), at + 40).history["loss"], rtol=1e-8)
    assert not (tmp_path / "disk1").exists()
