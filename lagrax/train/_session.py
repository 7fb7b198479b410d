"""A run between its dispatches: how far it is, and what has been recorded of it."""

import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from . import _checkpoint as ckpt
from ._compiled import State, Task, initial_state, start_of
from ._evaluate import Evaluations, Validation
from ._hosts import Processes, on_mesh, placed
from ._metrics import History, describe_loss
from ._request import Request, check_divides, number_of_samples, number_of_seeds
from ._result import Ended, Fit, message, stacked_snapshots


class Session:
    """A run: what it is made of, how far it is, and what has been recorded of it."""

    def __init__(self, asked: Request, mesh: Mesh | None, processes: Processes):
        parameters, rest = eqx.partition(asked.model, eqx.is_inexact_array)
        constants, rest = eqx.partition(rest, eqx.is_array)
        parameters, self.constants = jax.tree.map(jnp.asarray, (parameters, constants))
        self.data = on_mesh(jax.tree.map(lambda x: jnp.asarray(x) if eqx.is_array_like(x) else x, asked.data), mesh)
        self.task = _task(asked, self.data, rest, mesh)
        key, seeds = asked.key, self.task.seeds
        key = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jr.wrap_key_data(key)
        self.keys = self.placed(key if seeds is None else jr.split(key, seeds))
        self.constants = self.placed(self.constants)
        self.state: State = self.placed(initial_state(self.task, parameters))
        self.folder = None if asked.folder is None else os.fspath(asked.folder)
        self.made_of = ckpt.describe(
            asked.model, self.state.optimizer, self.data,
            key=np.asarray(jr.key_data(key)).tolist(), batch_size=asked.batch_size, seeds=seeds,
            data_stacked=asked.data_stacked, snapshots=asked.snapshots, evaluate_every=asked.evaluate_every,
            validation=asked.validation,
        )  # fmt: skip
        self.asked, self.processes = asked, processes
        self.evaluations = Evaluations(asked.evaluate, asked.evaluate_every)
        self.validation = Validation(asked.validation, asked.patience, seeds)
        self.iteration, self.seconds_before, self.seconds, self.saved_at = 0, 0.0, 0.0, -1
        self.history = History()
        self.snapshots: dict[int, list[Any]] = {}

    def placed(self, tree: PyTree) -> PyTree:
        """The tree with its arrays where the loop expects them."""
        where = self.task.everywhere
        return tree if where is None else jax.tree.map(lambda x: placed(x, where) if eqx.is_array(x) else x, tree)

    def resume(self) -> None:
        """Goes back to the checkpoint, if there is one."""
        if self.folder is None:
            return
        found = ckpt.read_together(self.folder, self.processes)
        if found is None:
            return
        path = os.path.join(self.folder, ckpt.CHECKPOINT)
        with self.processes.safely("resuming"):
            ckpt.check_same(path, found.made_of, self.made_of)
            if found.iteration > self.asked.iterations:
                raise ckpt.CheckpointError(
                    f"the checkpoint {path} is at iteration {found.iteration}, expected at most iterations = "
                    f"{self.asked.iterations}: ask for more iterations"
                )
        self.state = self.placed(ckpt.restored(found.state, self.state))
        self.iteration, self.saved_at = found.iteration, found.iteration
        self.seconds = self.seconds_before = found.seconds
        self.history = History(found.history)
        self.snapshots = dict(zip(found.snapshot_iterations, found.snapshots, strict=True))
        self.evaluations.restore(found.evaluation_iterations, found.evaluations)
        self.validation.restore(self.evaluations.taken, found.validated)

    def arguments(self, count: int) -> tuple[Any, ...]:
        """Those of the compiled loop."""
        epoch, position = start_of(self.iteration, self.task.batch_size, self.task.size)
        numbers = (np.int32(n) for n in (self.iteration, count, epoch, position))
        return self.state, self.constants, self.data, self.keys, *numbers

    def snapshot(self) -> None:
        self.snapshots.setdefault(self.iteration, ckpt.leaves_on_host(self.state.parameters))

    def evaluate(self) -> dict[str, np.ndarray]:
        # A copy, because the loop reuses the memory of its state, and the caller may keep the model.
        found = self.evaluations.take(self.whole(jax.tree.map(jnp.copy, self.state.parameters)), self.iteration)
        self.validation.see(self.iteration, found, self.state.parameters)
        self.saved_at = -1
        return found

    def whole(self, parameters: PyTree) -> PyTree:
        """The model with these parameters."""
        return eqx.combine(parameters, self.constants, self.task.rest)

    def record(self, rows: dict[str, Array], done: int, seconds: float) -> dict[str, np.ndarray]:
        """Takes over the metrics of a dispatch that has just ended, spreading its time evenly."""
        times = np.linspace(self.seconds, seconds, done + 1)[1:]
        new = {"seconds": times} | {name: np.array(np.asarray(rows[name])[:done]) for name in ("loss", *rows)}
        self.history.append(new)
        self.iteration, self.seconds = self.iteration + done, seconds
        return new

    def save(self) -> None:
        if self.folder is None or self.saved_at == self.iteration or not self.processes.writes:
            return
        checkpoint = ckpt.Checkpoint(
            made_of=self.made_of,
            iteration=self.iteration,
            seconds=self.seconds,
            state=ckpt.leaves_on_host(self.state),
            history=self.history.columns(),
            snapshot_iterations=list(self.snapshots),
            snapshots=list(self.snapshots.values()),
            evaluation_iterations=self.evaluations.iterations(),
            evaluations=self.evaluations.columns(),
            validated=self.validation.parameters,
        )
        ckpt.write(self.folder, checkpoint)
        self.saved_at = self.iteration

    def result(self, ended: Ended) -> Fit:
        structure: Any = jax.tree.structure(self.state.parameters)
        snapshots = [jax.tree.unflatten(structure, leaves) for leaves in self.snapshots.values()]
        best = self.state.best if self.validation.name is None else self.validation.best(self.state.parameters)
        return Fit(
            model=self.whole(self.state.parameters),
            best=None if best is None else self.whole(best),
            history=self.history.columns(),
            snapshots=stacked_snapshots(snapshots, self.constants, self.task.rest),
            snapshot_iterations=np.array(list(self.snapshots), int),
            evaluations=self.evaluations.columns(),
            evaluation_iterations=np.array(self.evaluations.iterations(), int),
            iterations=self.iteration,
            seconds=self.seconds,
            ended=ended,
            diverged=np.asarray(self.state.diverged),
            message=self.message(ended),
        )

    def message(self, ended: Ended) -> str:
        loss = self.history.columns().get("loss")
        described = describe_loss(np.asarray(loss[-1])) if loss is not None else "no loss yet"
        return message(ended, self.iteration, self.seconds, described, np.asarray(self.state.diverged))


def _task(asked: Request, data: PyTree, rest: PyTree, mesh: Mesh | None) -> Task:
    """What stays the same during training; raises for arrays whose sizes do not go together."""
    seeds = number_of_seeds(asked.model) if asked.stacked else None
    check_divides(mesh, asked.batch_size)
    return Task(
        loss=asked.loss,
        optimizer=optax.with_extra_args_support(asked.optimizer),
        rest=rest,
        seeds=seeds,
        data_per_seed=asked.data_stacked,
        in_turn=asked.in_turn,
        batch_size=asked.batch_size,
        size=number_of_samples(data, seeds if asked.data_stacked else None, asked.batch_size),
        mesh=mesh,
    )
