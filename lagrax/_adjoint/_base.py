"""What every way to differentiate a solve provides."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from .._loop import Setup, Trajectory
from .._problem import Problem


class AbstractAdjoint(eqx.Module):
    """How a solve is differentiated. Subclasses say how the trajectory depends on the problem."""

    @abc.abstractmethod
    def loop(self, problem: Problem, setup: Setup) -> Trajectory:
        """Integrates the problem, with the derivative rule of this adjoint."""


def without_tangents(trajectory: Trajectory) -> Trajectory:
    """Rids counters and result codes of the (meaningless) tangents that a custom derivative rule gives to integers, which
    the checks for failure could not digest. `stop_gradient` ignores integers, so they pass through floating point."""

    def cut(x):
        if eqx.is_array(x) and not eqx.is_inexact_array(x):
            return lax.stop_gradient(x.astype(jnp.float32)).astype(x.dtype)
        return x

    return jax.tree.map(cut, trajectory)
