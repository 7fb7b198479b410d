"""Evaluation on the way, every so many iterations: what a function of the caller says of the model; stopping early by it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._hosts import on_host, readable


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


class Validation:
    """Early stopping: the lowest evaluation so far, the parameters that had it, and whether it is long ago.

    Follows one entry of the evaluations, a number or one for each seed; without a `name`, none.

    `lowest` (*seeds,) was found after `at` (*seeds,) updates, by `parameters`, leaves on the host.
    """

    def __init__(self, name: str | None, patience: int | None, seeds: int | None):
        self.name, self._patience = name, patience
        self._shape = () if seeds is None else (seeds,)
        self.lowest, self.at = np.full(self._shape, np.inf), np.zeros(self._shape, int)
        self.parameters: list[np.ndarray] | None = None

    def see(self, iteration: int, found: dict[str, np.ndarray], parameters: PyTree) -> None:
        """Takes note of an evaluation of these parameters."""
        if self.name is None:
            return
        better = self._compare(iteration, found)
        new = [on_host(leaf) for leaf in jax.tree.leaves(parameters)]
        shaped = lambda leaf: better.reshape(self._shape + (1,) * (leaf.ndim - len(self._shape)))
        olds = new if self.parameters is None else self.parameters
        self.parameters = [np.where(shaped(leaf), leaf, old) for leaf, old in zip(new, olds, strict=True)]

    def restore(self, evaluations: dict[int, dict[str, np.ndarray]], parameters: list[np.ndarray] | None) -> None:
        if self.name is not None:
            self.parameters = parameters
            for iteration, found in evaluations.items():
                self._compare(iteration, found)

    def best(self, like: PyTree) -> PyTree:
        """The parameters of the lowest evaluation, as arrays of a PyTree like this one; as it is before there is any."""
        if self.parameters is None:
            return like
        structure: Any = jax.tree.structure(like)
        return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in self.parameters])

    def is_over(self, iteration: int) -> bool:
        """Whether no seed has become better for as long as there is patience."""
        return self._patience is not None and bool(np.all(iteration - self.at >= self._patience))

    def _compare(self, iteration: int, found: dict[str, np.ndarray]) -> np.ndarray:
        """Which seeds are better than before, and notes it."""
        if self.name not in found:
            raise ValueError(f"validation = {self.name!r}, and evaluate returned {sorted(found)}, expected it among these")
        value = np.asarray(found[self.name], float)
        if value.shape != self._shape:
            wanted = "one number for each seed" if self._shape else "one number"
            raise ValueError(
                f"evaluate returned {self.name!r} with shape {value.shape}, expected {self._shape}, {wanted}: take a mean"
            )
        better = value < self.lowest
        self.lowest, self.at = np.where(better, value, self.lowest), np.where(better, iteration, self.at)
        return better
