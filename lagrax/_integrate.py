"""Which loop solves a problem."""

from typing import Any

from . import _network, _planned, _staged
from ._problem import Problem
from ._setup import Setup
from ._trajectory import Cotangents, Trajectory


def integrate(problem: Problem, setup: Setup) -> Trajectory:
    """Solves the problem. Differentiable in forward mode; `_adjoint` adds reverse mode."""
    return _loop(problem).integrate(problem, setup)


def walk_back(trajectory: Trajectory, bars: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    """The transpose of `integrate`: (the cotangent of the problem's perturbed variables, the evaluations it took)."""
    return _loop(problem).walk_back(trajectory, bars, problem, perturbed, setup)


def _loop(problem: Problem) -> Any:
    if problem.network is not None:
        return _network
    return _staged if problem.lags else _planned
