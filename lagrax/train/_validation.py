"""Early stopping: the lowest evaluation so far, the parameters that had it, and whether it is long ago."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._hosts import on_host


class Validation:
    """Follows one entry of the evaluations, a number or one for each seed; without a `name`, none.

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
