"""Evaluation on the way: what a function of the caller says about the model, every so many iterations."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._hosts import readable


class Evaluations:
    """The results of `evaluate(model)`, by the iteration at which they were asked for."""

    def __init__(self, evaluate: Callable | None, every: int | None):
        self._evaluate, self.every = evaluate, every
        self.taken: dict[int, dict[str, np.ndarray]] = {}

    def due(self, iteration: int) -> bool:
        return self.every is not None and iteration % self.every == 0 and iteration not in self.taken

    def take(self, model: PyTree, iteration: int) -> dict[str, np.ndarray]:
        assert self._evaluate is not None
        found = _checked(self._evaluate(model))
        for before in list(self.taken.values())[-1:]:
            _check_alike(before, found)
        self.taken[iteration] = found
        return found

    def iterations(self) -> list[int]:
        return list(self.taken)

    def columns(self) -> dict[str, np.ndarray]:
        """An array per name, with an entry per evaluation."""
        rows = list(self.taken.values())
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]} if rows else {}

    def restore(self, iterations: list[int], columns: dict[str, np.ndarray]) -> None:
        rows = ({name: np.asarray(column[i]) for name, column in columns.items()} for i in range(len(iterations)))
        self.taken = dict(zip(iterations, rows, strict=True))

    def newest(self) -> dict[str, np.ndarray]:
        return self.taken[max(self.taken)] if self.taken else {}


def _checked(found: Any) -> dict[str, np.ndarray]:
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        kind = type(found).__name__ if not isinstance(found, dict) else "dict with names that are no strings"
        raise TypeError(f"evaluate returned a {kind}, expected a dict of arrays: such as {{'accuracy': accuracy}}")
    return {name: _array(name, value) for name, value in found.items()}


def _array(name: str, value: Any) -> np.ndarray:
    if not readable(value):
        raise ValueError(
            f"evaluate returned {name!r} spread over several processes, expected arrays that each has as a whole: take a "
            "mean, or replicate it by jax.jit(..., out_shardings=...)"
        )
    try:
        array = np.array(value)
    except (TypeError, ValueError):  # lists of unequal length, for instance
        array = np.array(None)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (np.bool_, np.integer, np.floating)):
        raise TypeError(
            f"evaluate returned {name!r} as a {type(value).__name__}, expected an array of real numbers: convert or drop it"
        )
    return array


def _check_alike(before: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
    """Raises if an evaluation cannot be put into one array with those before."""
    if set(found) != set(before):
        raise ValueError(
            f"evaluate returned {sorted(found)}, expected {sorted(before)} as before: return the same names every time"
        )
    for name, value in found.items():
        if value.shape != before[name].shape:
            raise ValueError(
                f"evaluate returned {name!r} with shape {value.shape}, expected {before[name].shape} as before: return "
                "arrays of the same shapes every time"
            )
