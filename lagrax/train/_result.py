"""What comes out of training."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._hosts import on_host

Ended = Literal["finished", "no longer improving", "interrupted", "diverged", "out of time"]


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of [`lagrax.train.fit`][]. With several seeds, models and metrics have a seed axis.

    - `model`: the trained model. A seed whose loss or parameters stopped being finite has those of just before.
    - `best`: the model with the lowest validation, if that was asked for, else with the lowest recorded loss; then None with
      minibatches, whose losses do not compare.
    - `history`: NumPy arrays, one entry per iteration: `"loss"`, the loss's own metrics, and `"seconds"` since
      the start (shared by all seeds). Entry k belongs to the model after k updates. With seeds the shape
      is (iterations, seeds, ...); after a seed has diverged its entries are NaN (0 for integers).
    - `snapshots`: the model with one more leading axis in every array, one entry per snapshot, before the seed axis; None
      if none were asked for. `snapshot_iterations` says after how many updates each was taken.
    - `evaluations`: NumPy arrays, what `evaluate` returned, with one more leading axis: one entry per evaluation. `{}` if
      there were none. `evaluation_iterations` says after how many updates each took place.
    - `iterations`, `seconds`: how many were done, and how long they took, earlier parts of a resumed run included.
    - `ended`: "finished", "no longer improving" (see `patience`), "interrupted" (Ctrl-C), "diverged" (no seed is
      left) or "out of time".
    - `diverged`: the iteration at which a seed went wrong, −1 where none did; shape () or (seeds,).
    - `message`: the end in a sentence.
    """

    model: PyTree
    best: PyTree
    history: dict[str, np.ndarray]
    snapshots: PyTree
    snapshot_iterations: np.ndarray
    evaluations: dict[str, np.ndarray]
    evaluation_iterations: np.ndarray
    iterations: int
    seconds: float
    ended: Ended
    diverged: np.ndarray
    message: str


def stacked_snapshots(snapshots: list[PyTree], constants: PyTree, rest: PyTree) -> PyTree:
    """Parameters at several iterations as one model."""
    if not snapshots:
        return None
    parameters = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *snapshots)
    repeat = lambda x: jnp.broadcast_to(jnp.asarray(on_host(x)), (len(snapshots), *x.shape))
    return eqx.combine(parameters, jax.tree.map(repeat, constants), rest)


def message(ended: Ended, iterations: int, seconds: float, loss: str, diverged: np.ndarray) -> str:
    """How the run went, in a sentence or two."""
    text = f"{ended} after {iterations} iterations and {seconds:.1f} s, {loss}"
    lost = [(seed, int(at)) for seed, at in enumerate(np.atleast_1d(diverged)) if at >= 0]
    if not lost:
        return text
    where = ", ".join(f"seed {seed} at iteration {at}" if diverged.ndim else f"at iteration {at}" for seed, at in lost)
    return f"{text}. Loss or parameters were no longer finite: {where}; the model from just before is kept"
