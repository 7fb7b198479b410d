"""Fitting models to time series, as the paper's regressions do: mean absolute error, Adam, all seeds at once."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ..nn import AbstractModel
from ..runner import Numbers, Settings, number
from ..train import Fit
from ._training import evaluations, train_seeds


@dataclasses.dataclass(frozen=True)
class FitNumbers(Numbers):
    """The numbers of a fit to a series; others are added by the experiments, and the defaults are the paper's."""

    iterations: int = number(3000, "updates of Adam")
    learning_rate: float = number(0.01, "of Adam")
    sampling: float = number(0.05, "time between two observations", least=1e-4)
    biases: bool = number(False, "whether the networks have biases, which the paper's formulas do not")
    snapshots: int = number(60, "models kept during training")
    max_steps: int = number(512, "steps of a solve, at most")


class Series(eqx.Module):
    """What models are fitted to: states `xs` (times, ..., d) at the times `ts`, from the constant past xs[0].

    With seeds, every array has a leading seed axis.
    """

    ts: Float[Array, "*seeds times"]
    xs: Float[Array, "..."]


def predict(model: AbstractModel, ts: Any, x0: Float[Array, "..."], adjoint: Any = None):
    """(The model's states at ts without augmented components, the `stats` of the solve); infinite where it failed."""
    solution = model.solve(x0, ts, adjoint=adjoint, throw=False)
    ys: Any = solution.ys
    return ys[..., : x0.shape[-1]], solution.stats


def absolute_error(settings: Settings, ts: np.ndarray) -> Callable:
    """The loss of the paper's regressions, for states at times `ts`. These are plain numbers, so that the length of the
    solve is known before compiling: `PiecewiseAdjoint` needs it."""

    def loss(model: AbstractModel, xs: Float[Array, "..."], key: Array):
        found, stats = predict(model, ts, xs[0], settings.adjoint)
        return jnp.mean(jnp.abs(found - xs)), evaluations(settings, stats)

    return loss


def train(settings: Settings, makers: dict[str, Callable], series: Series) -> dict[str, Fit]:
    """Fits each kind of model, `makers[name](key)`, to the series (of each seed)."""
    iterations = settings.numbers.iterations
    every = max(1, iterations // settings.numbers.snapshots)
    loss = absolute_error(settings, np.asarray(series.ts[0]))
    fits = {}
    for position, (name, make) in enumerate(makers.items()):
        key = jr.fold_in(jr.key(0), position)
        fits[name] = train_seeds(settings, name, make, loss, series.xs, iterations, key, snapshots=every)
    return fits


def judged(settings: Settings, reproduced: Any) -> bool | None:
    """The verdict on a claim; none where the training was cut short for a first look."""
    return None if settings.preset == "smoke" else bool(reproduced)


def repeat(series: Series, seeds: int) -> Series:
    """The same series for every seed."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds, *leaf.shape)), series)


def median_seed(values: np.ndarray) -> int:
    """The seed whose number is in the middle, to be shown in figures."""
    return int(np.argsort(values)[(len(values) - 1) // 2])


def smooth(values: np.ndarray, window: int = 25) -> np.ndarray:
    """A running median along the first axis, for curves that jitter as those of an absolute error do."""
    values = np.asarray(values, float)
    padded = np.concatenate([values[:1].repeat(window // 2, axis=0), values, values[-1:].repeat(window // 2, axis=0)])
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, window, axis=0), axis=-1)[: len(values)]


def plot_band(axis: Any, iterations: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    """The median over the seeds, and the range from the lowest to the highest; without seeds that have diverged."""
    finite = np.ma.masked_invalid(values)
    axis.plot(iterations, np.ma.median(finite, axis=1), color=colour, label=label)
    if values.shape[1] > 1:
        axis.fill_between(iterations, finite.min(axis=1), finite.max(axis=1), color=colour, alpha=0.18, linewidth=0)
