"""Training one kind of model for an experiment: all seeds at once, in a folder of its own, saved at the end."""

from collections.abc import Callable
from typing import Any

import jax.random as jr
import optax
from jaxtyping import Array

from ..runner import Settings, UserError, is_first
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
    settings.say(f"{name}: {fitted.message}")
    if fitted.ended == "interrupted":
        raise KeyboardInterrupt
    if fitted.ended == "diverged":
        raise UserError(f"every seed of {name} diverged: try a smaller tolerance or learning rate")
    for seed in range(settings.seeds if is_first() else 0):
        save(folder / f"seed-{seed}.lagrax", unstack(fitted.model, seed))
    return fitted
