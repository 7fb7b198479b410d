"""Training a model: the loop around the compiled loop."""

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import jax
import numpy as np
import optax
from jaxtyping import Array, PyTree

from ._checkpoint import METRICS, checksum, prepared
from ._compiled import compile_chunk
from ._hosts import Processes, mesh_of
from ._metrics import MetricsFile, Progress
from ._request import Request
from ._result import Ended, Fit
from ._schedule import Clock, Pace, interruptible, next_stop
from ._session import Session

_CHECKPOINT_SECONDS = 30.0


def fit(
    model: PyTree,
    loss: Callable,
    data: PyTree,
    optimizer: optax.GradientTransformation,
    iterations: int,
    *,
    key: Array,
    batch_size: int | None = None,
    stacked: bool = False,
    data_stacked: bool = False,
    in_turn: bool = False,
    folder: str | os.PathLike | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    snapshots: int | None = None,
    evaluate: Callable | None = None,
    evaluate_every: int | None = None,
    validation: str | None = None,
    patience: int | None = None,
    until: float | None = None,
    chunk: int | None = None,
    progress: bool = True,
) -> Fit:
    """Trains a model, one seed or several at once, and survives being interrupted.

    **Arguments:**

    - `model`: a PyTree. Its floating-point arrays are trained, everything else stays as it is.
    - `loss`: `loss(model, batch, key) -> (value, metrics)` with a scalar value and a dict of arrays to be recorded, for
      example `{"evaluations": solution.stats["num_evaluations"]}`. Solve with `throw=False`, so that a failed solve makes
      the loss infinite instead of ending the training.
    - `data`: a PyTree of arrays, handed to `loss` whole or, with `batch_size`, in batches along the leading axis. If it is
      spread over devices by a `jax.sharding.NamedSharding`, so are the batches, and the model is on all of them. The
      devices may be those of several processes (`jax.distributed`), which then all call `fit` with the same arguments:
      process 0 keeps the time and writes, and a signal to any of them stops all.
    - `optimizer`: from Optax, also one that uses the value of the loss (`reduce_on_plateau`, `lbfgs`).
    - `iterations`: how many updates to have made at the end, those before a resumption included.
    - `key`: all randomness comes from it: the shuffling of batches, and a key of its own for each call of `loss`.
    - `batch_size`: samples per batch, or None for all. Each epoch is a new shuffle and has each sample once; a batch that an
      epoch's end does not fill is filled by the next epoch.
    - `stacked`: train several seeds at once: every array of `model` has a leading axis, one entry per seed (see
      [`lagrax.train.stack`][]). Seed i gets `jax.random.split(key, seeds)[i]` and its own optimiser state, and the result is
      that of training it alone with this key, up to rounding.
    - `data_stacked`: every array of `data` has a leading seed axis too; otherwise all seeds share the data.
    - `in_turn`: compute the seeds of an iteration one after the other instead of in one batch. Faster where one seed alone
      keeps the device busy: under `vmap` all of them take as many steps as the one that needs most, and the buffers of their
      solves are read and written by gathers and scatters.
    - `folder`: where to keep `checkpoint.lagrax` and `metrics.jsonl`, or None. A folder that holds a run is refused, unless
    - `resume` is true: then that run goes on from its checkpoint, and ends with the very numbers of a run that was never
      stopped; if there is none, it starts. Everything else has to be given as at the start, only `iterations`, `patience`,
      `until`, `chunk`, `checkpoint_every` and `progress` may differ.
    - `checkpoint_every`: iterations between checkpoints, or None for one every 30 seconds. There is always one at the end.
    - `snapshots`: keep a copy of the model every so many iterations, starting with the given one.
    - `evaluate`, `evaluate_every`: call `evaluate(model)` with the whole model every so many iterations, starting with the
      given one. It returns a dict of arrays or numbers, with the same names and shapes every time, for example
      `{"accuracy": accuracy}`, and runs outside the compiled loop, so that it may do anything: use another data set, call
      functions that are jitted, draw.
    - `validation`: the name of something that `evaluate` returns, a number (with `stacked` one for each seed) that should be
      low, such as an error on other data: `best` is then the model of its lowest value.
    - `patience`: stop early, when no seed's `validation` has become lower for so many iterations; None for never.
    - `until`: stop cleanly after so many seconds, compiling and evaluating included.
    - `chunk`: iterations per dispatch, by default as many as take half a second. Does not change the result.
    - `progress`: whether to print progress to stderr.

    Ctrl-C or SIGTERM ends the current dispatch, saves, and returns; the second one stops at once. A seed whose loss or
    parameters are not finite keeps its last good state while the others go on; when none is left, training ends.

    **Returns:**

    A [`lagrax.train.Fit`][].
    """
    given = locals()
    mesh = mesh_of(data)
    processes = Processes(mesh)
    clock = Clock(math.inf if until is None else until, processes)
    with ExitStack() as held:
        with processes.safely("the start of fit"):
            asked = Request(**given)
            if folder is not None and processes.writes:
                held.enter_context(prepared(os.fspath(folder), resume))
            session = Session(asked, mesh, processes)
        if processes.several:
            numbers = {"model (its numbers)": checksum(model)}
            processes.check_same({**session.made_of, **asked.same_everywhere(), **numbers})
        if resume:
            session.resume()
        ended = _train(session, clock)
    return session.result(ended)


def _train(run: Session, clock: Clock) -> Ended:
    """Dispatches chunks until the end, saving on the way. Returns how it ended."""
    asked, processes, evaluations = run.asked, run.processes, run.evaluations
    iterations, every, snapshots = asked.iterations, asked.checkpoint_every, asked.snapshots
    pace, bar = Pace(asked.chunk), Progress(asked.progress and processes.writes, run.iteration, iterations)
    bar.compiling()
    chunk, metrics = _start(run, clock)
    bar.compiled()
    running, saved = bool(np.any(np.asarray(run.state.alive))), clock.agreed()
    with closing(metrics), interruptible() as interrupted:
        while True:
            if snapshots and run.iteration % snapshots == 0:
                run.snapshot()
            stop, (now, count) = processes.agree(interrupted(), clock.spent(), pace.count(clock.left()))
            over = run.validation.is_over(run.iteration)
            ended = _ended(run.iteration >= iterations, running, over, stop, now >= clock.budget)
            # Who wants to stop should not have to wait for an evaluation: it is made when the run goes on.
            if evaluations.due(run.iteration) and ended not in ("interrupted", "out of time"):
                found = _evaluate(run, clock)
                with processes.safely("writing the metrics"):
                    metrics.write_evaluation(run.iteration, found)
                continue  # it may have taken the rest of the time
            due = run.iteration % every == 0 if every else now - saved > _CHECKPOINT_SECONDS
            if ended or due:
                with processes.safely("saving"):
                    run.save()
                saved = clock.agreed()
            if ended:
                break
            stops = next_stop(run.iteration, every, snapshots, evaluations.every, iterations)
            first = run.iteration
            new, running = _dispatch(run, chunk, min(int(count), stops - first), pace, clock)
            with processes.safely("writing the metrics"):
                metrics.write(first, new)
            bar.update(run.iteration, np.asarray(new["loss"][-1]), evaluations.newest())
    bar.finish(run.message(ended))
    return ended


def _start(run: Session, clock: Clock) -> tuple[Callable, MetricsFile]:
    """Compiles, and leaves traces in the folder once it is clear that loss and evaluation can be called."""
    with run.processes.safely("compiling"):
        chunk = compile_chunk(run.task, *run.arguments(0))
    if run.evaluations.due(run.iteration):
        _evaluate(run, clock)
    with run.processes.safely("saving"):
        run.save()
        path = os.path.join(run.folder, METRICS) if run.folder is not None and run.processes.writes else None
        return chunk, MetricsFile(path, run.history.columns(), run.evaluations.taken)


def _evaluate(run: Session, clock: Clock) -> dict[str, np.ndarray]:
    with run.processes.safely("evaluation"):
        found = run.evaluate()
    run.seconds = run.seconds_before + clock.agreed()
    return found


def _dispatch(run: Session, chunk: Callable, count: int, pace: Pace, clock: Clock) -> tuple[dict[str, np.ndarray], bool]:
    """Lets the compiled loop run. Returns the new metrics, and whether any seed is still going."""
    before = time.monotonic()
    run.state, rows, done, alive = chunk(*run.arguments(count))
    _wait(done)
    count = int(done)
    pace.measured(count, time.monotonic() - before)
    return run.record(rows, count, run.seconds_before + clock.agreed()), bool(alive)


def _ended(finished: bool, running: bool, over: bool, interrupted: bool, late: bool) -> Ended | None:
    if not running:
        return "diverged"
    if finished:
        return "finished"
    if over:
        return "no longer improving"
    if interrupted:
        return "interrupted"
    return "out of time" if late else None


def _wait(array: jax.Array) -> None:
    """Waits for a result in Python, where signals are heard, and not inside JAX."""
    while not array.is_ready():  # type: ignore[attr-defined]
        time.sleep(0.0005)
