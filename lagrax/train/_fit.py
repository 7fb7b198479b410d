"""Training a model: the loop around the compiled loop."""

import math
import os
import time
from collections.abc import Callable

import jax
import numpy as np
import optax
from jaxtyping import Array, PyTree

from ._arguments import check_counts
from ._checkpoint import METRICS, prepare_folder
from ._interrupt import interruptible
from ._loop import compile_chunk
from ._metrics import MetricsFile
from ._pace import Pace, next_stop
from ._progress import Progress
from ._result import Ended, Fit
from ._run import Run

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
    folder: str | os.PathLike | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    snapshots: int | None = None,
    until: float | None = None,
    chunk: int | None = None,
    progress: bool = True,
) -> Fit:
    """Trains a model, one seed or several at once, and survives being interrupted.

    **Arguments:**

    - `model`: a PyTree. Its floating-point arrays are trained, everything else stays as it is.
    - `loss`: `loss(model, batch, key, tally) -> (value, metrics)` with a scalar value and a dict of arrays to be recorded,
      for example `{"forward evaluations": solution.stats["num_evaluations"]}`. The scalar `tally` is for an adjoint,
      `DiscreteAdjoint(tally=tally)`: its gradient is recorded as `"backward evaluations"`, 0 if it is not used. Solve with
      `throw=False`, so that a failed solve makes the loss infinite instead of ending the training.
    - `data`: a PyTree of arrays, handed to `loss` whole or, with `batch_size`, in batches along the leading axis. If it is
      spread over devices by a `jax.sharding.NamedSharding`, so are the batches, and the model is on all of them.
    - `optimizer`: from Optax, also one that uses the value of the loss (`reduce_on_plateau`, `lbfgs`).
    - `iterations`: how many updates to have made at the end, those before a resumption included.
    - `key`: all randomness comes from it: the shuffling of batches, and a key of its own for each call of `loss`.
    - `batch_size`: samples per batch, or None for all. Each epoch is a new shuffle and has each sample once; a batch that an
      epoch's end does not fill is filled by the next epoch.
    - `stacked`: train several seeds at once: every array of `model` has a leading axis, one entry per seed (see
      [`lagrax.train.stack`][]). Seed i gets `jax.random.split(key, seeds)[i]` and its own optimiser state, and the result is
      that of training it alone with this key, up to rounding.
    - `data_stacked`: every array of `data` has a leading seed axis too; otherwise all seeds share the data.
    - `folder`: where to keep `checkpoint.lagrax` and `metrics.jsonl`, or None. A folder that holds a run is refused, unless
    - `resume` is true: then that run goes on from its checkpoint, and ends with the very numbers of a run that was never
      stopped; if there is none, it starts. Everything else has to be given as at the start, only `iterations`, `until`,
      `chunk`, `checkpoint_every` and `progress` may differ.
    - `checkpoint_every`: iterations between checkpoints, or None for one every 30 seconds. There is always one at the end.
    - `snapshots`: keep a copy of the model every so many iterations, starting with the given one.
    - `until`: stop cleanly after so many seconds, compiling included.
    - `chunk`: iterations per dispatch, by default as many as take half a second. Does not change the result.
    - `progress`: whether to print progress to stderr.

    Ctrl-C or SIGTERM ends the current dispatch, saves, and returns; the second one stops at once. A seed whose loss or
    parameters are not finite keeps its last good state while the others go on; when none is left, training ends.

    **Returns:**

    A [`lagrax.train.Fit`][].
    """
    clock = _Clock(math.inf if until is None else until)
    check_counts(iterations, batch_size, checkpoint_every, snapshots, chunk, until, folder, resume)
    if folder is not None:
        prepare_folder(os.fspath(folder), resume)
    run = Run(model, loss, data, optimizer, key, batch_size, stacked, data_stacked, snapshots, folder)
    if resume:
        run.resume(iterations)
    ended = _train(run, iterations, clock, checkpoint_every, snapshots, chunk, progress)
    return run.result(ended)


class _Clock:
    """Seconds since the start of the call, and until the end of its budget."""

    def __init__(self, budget: float):
        self.start, self.budget = time.monotonic(), budget

    def spent(self) -> float:
        return time.monotonic() - self.start

    def left(self) -> float:
        return self.budget - self.spent()


def _train(
    run: Run, iterations: int, clock: _Clock, every: int | None, snapshots: int | None, fixed: int | None, shown: bool
) -> Ended:
    """Dispatches chunks until the end, saving on the way. Returns how it ended."""
    chunk = compile_chunk(run.task, *run.arguments(0))
    pace, bar = Pace(fixed), Progress(shown, run.iteration, iterations)
    running, saved = bool(np.any(np.asarray(run.state.alive))), clock.spent()
    run.save()
    metrics = MetricsFile(os.path.join(run.folder, METRICS), run.history.columns()) if run.folder is not None else None
    with interruptible() as interrupted:
        while True:
            if snapshots and run.iteration % snapshots == 0:
                run.snapshot()
            ended = _ended(run.iteration >= iterations, running, interrupted(), clock)
            due = run.iteration % every == 0 if every else clock.spent() - saved > _CHECKPOINT_SECONDS
            if ended or due:
                run.save()
                saved = clock.spent()
            if ended:
                break
            count = min(pace.count(clock.left()), next_stop(run.iteration, every, snapshots, iterations) - run.iteration)
            before = time.monotonic()
            run.state, rows, done, alive = chunk(*run.arguments(count))
            _wait(done)
            first, count, running = run.iteration, int(done), bool(alive)
            pace.measured(count, time.monotonic() - before)
            new = run.record(rows, count, run.seconds_before + clock.spent())
            if metrics is not None:
                metrics.write(first, new)
            bar.update(run.iteration, np.asarray(new["loss"][-1]))
    if metrics is not None:
        metrics.close()
    bar.finish(run.message(ended))
    return ended


def _ended(finished: bool, running: bool, interrupted: bool, clock: _Clock) -> Ended | None:
    if not running:
        return "diverged"
    if finished:
        return "finished"
    if interrupted:
        return "interrupted"
    return "out of time" if clock.left() <= 0 else None


def _wait(array: jax.Array) -> None:
    """Waits for a result in Python, where signals are heard, and not inside JAX."""
    while not array.is_ready():  # type: ignore[attr-defined]
        time.sleep(0.0005)
