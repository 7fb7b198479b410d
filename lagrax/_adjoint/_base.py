"""What every way to differentiate a solve provides."""

import abc

import equinox as eqx

from .._loop import Setup, Trajectory
from .._problem import Problem


class AbstractAdjoint(eqx.Module):
    """How a solve is differentiated. Subclasses say how the trajectory depends on the problem."""

    @abc.abstractmethod
    def loop(self, problem: Problem, setup: Setup) -> Trajectory:
        """Integrates the problem, with the derivative rule of this adjoint."""
