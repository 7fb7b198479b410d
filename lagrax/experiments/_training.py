"""Training one kind of model for an experiment: all seeds at once, in a folder of its own, saved at the end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array

from .._adjoint import DiscreteAdjoint
from ..runner import Settings, Table, UserError, is_first, of_seeds, range_of
from ..saving._persist import save
from ..train import Fit, fit, stack, unstack


def evaluations(settings: Settings, stats: Mapping[str, Any]) -> dict[str, Any]:
    """What a loss records of a solve. The discrete adjoint takes every accepted step once more; how often those of the paper
    evaluate the field is not known in advance, see `complexity`."""
    found = {"forward evaluations": stats["num_evaluations"]}
    if isinstance(settings.adjoint, DiscreteAdjoint):
        found["backward evaluations"] = stats["num_accepted_steps"] * stats["num_stages"]
    return found


def evaluations_at_end(fitted: Fit, iterations: int) -> dict[str, Any]:
    """Medians over the last so many iterations, of each seed, as `evaluations` recorded them."""
    names = [name for name in ("forward evaluations", "backward evaluations") if name in fitted.history]
    return {name: of_seeds(np.median(fitted.history[name][-iterations:], axis=0)) for name in names}


def ranges_table(title: str, measured: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Table:
    """A row a model: median and range over the seeds of each of these quantities that was measured."""
    shown = [name for name in names if all(name in numbers for numbers in measured.values())]
    rows = [(model, *(range_of(numbers[name]) for name in shown)) for model, numbers in measured.items()]
    return Table(title, ("model", *shown), rows)


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
