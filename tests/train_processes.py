"""One of two processes that train together: `python -m tests.train_processes JOB INDEX PORT FOLDER`.

Each has two devices, and a folder of its own in place of a disk. A job checks what it can, and leaves its numbers to the
test that started it.
"""

import os
import pathlib
import shutil
import signal
import sys
import traceback

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from lagrax.train import CheckpointError, fit

from .train_problem import Line, data, loss, optimizer


def train(xy, iterations, **options):
    """Batches that do not fill an epoch, a noisy loss, snapshots and evaluations."""
    settings = {"model": Line(jr.key(0)), "key": jr.key(1), "batch_size": 8, "snapshots": 6, "progress": False}
    settings |= {"evaluate": size, "evaluate_every": 4} | options
    return fit(loss=loss, data=xy, optimizer=optimizer, iterations=iterations, **settings)


def size(model):
    return {"size": jnp.sum(model.weight**2), "bias": np.asarray(model.bias)}


def spread(*axes):
    """The data on all devices of both processes."""
    mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    return jax.device_put(jax.tree.map(np.asarray, data(20)), NamedSharding(mesh, PartitionSpec(*axes)))


def numbers(result):
    """All that a run has found, as arrays."""
    at = {"evaluated": result.evaluation_iterations, "snapshots": result.snapshot_iterations}
    weights = {"weight": result.model.weight, "weights": result.snapshots.weight, "constants": result.snapshots.steps}
    weights |= {} if result.best is None else {"best": result.best.weight}
    return {name: np.asarray(x) for name, x in {**result.history, **result.evaluations, **at, **weights}.items()}


def check_equal(a, b):
    """Bit by bit, the times apart."""
    a, b = numbers(a), numbers(b)
    for name in set(a) - {"seconds"}:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def straight(index, folder):
    """Both ways of spreading the data, and no batches; the test compares with one process."""
    jobs = {"replicated": ((), 8, None), "sharded": (("batch",), 8, 7), "full": (("batch",), None, 7)}
    for name, (axes, batch_size, chunk) in jobs.items():
        result = train(spread(*axes), 20, batch_size=batch_size, chunk=chunk, folder=folder / f"disk{index}" / name)
        assert result.ended == "finished" and not result.model.weight.is_fully_addressable
        np.savez(folder / f"{name}{index}.npz", **numbers(result))


def stopped(index, folder):
    """A signal that only process 1 gets stops both, and both go on from the disk of process 0."""
    calls = []

    def stop(model):
        calls.append(None)
        if index == 1 and len(calls) == 3:
            signal.raise_signal(signal.SIGTERM)
        return size(model)

    again = {"folder": folder / f"disk{index}", "resume": True}
    part = train(spread(), 10**6, evaluate=stop, **again)
    assert part.ended == "interrupted" and part.iterations == 8, part.message
    whole = train(spread(), 20, **again)
    assert whole.ended == "finished" and len(whole.history["loss"]) == 20
    check_equal(whole, train(spread(), 20))
    np.savez(folder / f"whole{index}.npz", **numbers(whole))


def errors(index, folder):
    """What goes wrong in one process is raised in both, and both can go on afterwards."""
    here, full = folder / f"disk{index}", {"batch_size": None}

    def alone(at, error, match):
        mine = index == at
        return pytest.raises(error if mine else RuntimeError, match=match if mine else f"failed in process {at}, expected")

    # Only process 0's clock counts.
    late = train(spread(), 10**6, until=0.01, folder=here / "used", **full)
    assert late.ended == "out of time" and late.iterations < 10**6
    with alone(0, FileExistsError, "already holds a run"):
        train(spread(), 3, folder=here / "used", **full)
    if index == 0:
        (here / "used" / "checkpoint.lagrax").write_bytes(b"nonsense")
    with alone(0, CheckpointError, "the checkpoint cannot be read"):
        train(spread(), 4, folder=here / "used", resume=True, **full)
    with alone(1, ValueError, "iterations = 0"):
        train(spread(), 3 - 3 * index, **full)
    with alone(1, ZeroDivisionError, "by zero"):
        train(spread(), 3, evaluate=lambda model: {"a": 1 // (1 - index)}, **full)
    with alone(0, FileNotFoundError, "cannot be written"):
        train(spread(), 8, evaluate=lambda model: shutil.rmtree(here / "lost", True) or {}, folder=here / "lost", **full)
    with pytest.raises(ValueError, match="process 1 was given another key than process 0, expected the same"):
        train(spread(), 3, key=jr.key(index))
    with pytest.raises(ValueError, match=r"process 1 was given another model \(its numbers\) than process 0"):
        train(spread(), 3, model=Line(jr.key(index)))
    with pytest.raises(ValueError, match="batch_size = 6 with data on 4 devices, expected a multiple"):
        train(spread(), 3, batch_size=6)
    with pytest.raises(ValueError, match="evaluate returned 'a' spread over several processes"):
        train(spread(), 3, evaluate=lambda model: {"a": spread("batch")[0]}, **full)


def endless(index, folder):
    train(spread(), 10**7, folder=folder / f"disk{index}", checkpoint_every=40, chunk=5)


def resumed(index, folder):
    iterations = int((folder / "iterations").read_text())
    whole = train(spread(), iterations, folder=folder / f"disk{index}", resume=True)
    assert whole.ended == "finished" and whole.iterations == iterations
    check_equal(whole, train(spread(), iterations))


if __name__ == "__main__":
    job, index, port, folder = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, int(index))
    try:
        globals()[job](int(index), pathlib.Path(folder))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # an ordinary exit would wait for the other process, which may be waiting for this one
