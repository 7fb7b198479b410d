"""What one gradient costs by some adjoint: evaluations of both passes, numbers kept between them, error. Shared with the
benchmarks."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._adjoint import ContinuousAdjoint, DiscreteAdjoint, PiecewiseAdjoint
from .._adjoint._count import counting

ADJOINTS = {"discrete": DiscreteAdjoint(), "continuous": ContinuousAdjoint(), "piecewise": PiecewiseAdjoint()}


@dataclasses.dataclass(frozen=True)
class Passes:
    """The two passes of a gradient, compiled apart: `loss(args) -> (value, stats)` with the `stats` of its solve."""

    forwards: Callable
    backwards: Callable
    args: Any

    @classmethod
    def of(cls, loss: Callable, args: Any) -> "Passes":
        def forwards(args):
            _, transpose, stats = jax.vjp(loss, args, has_aux=True)
            return transpose, stats

        return cls(jax.jit(forwards), jax.jit(lambda transpose: transpose(jnp.ones(()))[0]), args)

    def __call__(self) -> Any:
        """The gradient."""
        return self.backwards(self.forwards(self.args)[0])

    def kept(self) -> list[jax.Array]:
        """The arrays that wait for the backward pass."""
        return [leaf for leaf in jax.tree.leaves(self.forwards(self.args)[0]) if eqx.is_array(leaf)]

    def stats(self) -> dict[str, int]:
        return {name: int(value) for name, value in self.forwards(self.args)[1].items()}


def backward_evaluations(loss: Callable, args: Any, adjoint: Any) -> int:
    """How often the backward pass evaluates the vector field. Those of the paper's adjoints are counted in a program of its
    own: the callback by which the number leaves it would be timed otherwise."""
    if isinstance(adjoint, DiscreteAdjoint):
        _, stats = jax.jit(loss)(args)
        return int(stats["num_accepted_steps"] * stats["num_stages"])
    with counting() as found:
        jax.block_until_ready(jax.jit(jax.grad(lambda args: loss(args)[0]))(args))
    return found[-1]


def relative_error(found: Any, exact: Any) -> float:
    flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    return float(np.linalg.norm(flat(found) - flat(exact)) / np.linalg.norm(flat(exact)))
