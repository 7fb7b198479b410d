"""How experiments train: all seeds of a model at once, or several models on time series as the paper's regressions do; and
what is then judged, measured and drawn."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float

from .._adjoint import DiscreteAdjoint
from ..nn import AbstractModel
from ..runner import Numbers, Settings, Table, UserError, is_first, number, of_seeds, range_of
from ..saving._persist import save
from ..train import Fit, fit, stack, unstack


def train_seeds(
    settings: Settings, name: str, make: Callable, loss: Callable, data: Any, iterations: int, key: Array, **options: Any
) -> Fit:
    """Fits `make(key)` of every seed to its entry of `data`, with Adam. `options` are those of `lagrax.train.fit`.

    Where the numbers have a `decay` that is true, the learning rate falls to zero along half a cosine.
    """
    folder, rate = settings.folder / name, settings.numbers.learning_rate
    if getattr(settings.numbers, "decay", False):
        rate = optax.cosine_decay_schedule(rate, iterations)
    settings.say(f"{name}: {iterations} iterations, {settings.seeds} seed{'s' * (settings.seeds > 1)}")
    fitted = fit(
        stack([make(each) for each in jr.split(key, settings.seeds)]),
        loss,
        data,
        optax.adam(rate),
        iterations,
        key=key,
        stacked=True,
        folder=folder,
        resume=settings.resume,
        progress=settings.progress,
        **{"data_stacked": True, **options},
    )
    if fitted.ended == "interrupted":
        raise KeyboardInterrupt
    if fitted.ended == "diverged":
        raise UserError(f"every seed of {name} diverged: try a smaller tolerance or learning rate")
    for seed in range(settings.seeds if is_first() else 0):
        save(folder / f"seed-{seed}.lagrax", unstack(fitted.model, seed))
    return fitted


def evaluations(settings: Settings, stats: Mapping[str, Any]) -> dict[str, Any]:
    """What a loss records of a solve. The discrete adjoint takes every accepted step once more; how often those of the paper
    evaluate the field is not known in advance, see `complexity`."""
    found = {"forward evaluations": stats["num_evaluations"]}
    if isinstance(settings.adjoint, DiscreteAdjoint):
        found["backward evaluations"] = stats["num_accepted_steps"] * stats["num_stages"]
    return found


# --- regressions ------------------------------------------------------------------------------------------------------


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


def repeat(series: Series, seeds: int) -> Series:
    """The same series for every seed."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds, *leaf.shape)), series)


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


def absolute_error(settings: Settings, ts: np.ndarray) -> Callable:
    """The loss of the paper's regressions, for states at times `ts`. These are plain numbers, so that the length of the
    solve is known before compiling: `PiecewiseAdjoint` needs it."""

    def loss(model: AbstractModel, xs: Float[Array, "..."], key: Array):
        found, stats = predict(model, ts, xs[0], settings.adjoint)
        return jnp.mean(jnp.abs(found - xs)), evaluations(settings, stats)

    return loss


def predict(model: AbstractModel, ts: Any, x0: Float[Array, "..."], adjoint: Any = None):
    """(The model's states at ts without augmented components, the `stats` of the solve); infinite where it failed."""
    solution = model.solve(x0, ts, adjoint=adjoint, throw=False)
    ys: Any = solution.ys
    return ys[..., : x0.shape[-1]], solution.stats


# --- what came of it --------------------------------------------------------------------------------------------------


def judged(settings: Settings, reproduced: Any) -> bool | None:
    """The verdict on a claim; none where the training was cut short for a first look."""
    return None if settings.preset == "smoke" else bool(reproduced)


def evaluations_at_end(fitted: Fit, iterations: int) -> dict[str, Any]:
    """Medians over the last so many iterations, of each seed, as `evaluations` recorded them."""
    names = [name for name in ("forward evaluations", "backward evaluations") if name in fitted.history]
    return {name: of_seeds(np.median(fitted.history[name][-iterations:], axis=0)) for name in names}


def ranges_table(title: str, measured: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Table:
    """A row a model: median and range over the seeds of each of these quantities that was measured."""
    shown = [name for name in names if all(name in numbers for numbers in measured.values())]
    rows = [(model, *(range_of(numbers[name]) for name in shown)) for model, numbers in measured.items()]
    return Table(title, ("model", *shown), rows)


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
