"""Which loop solves a problem."""

from typing import Any

from . import _planned, _staged
from ._problem import Problem
from ._setup import Setup
from ._trajectory import Cotangents, Trajectory


def integrate(problem: Problem, setup: Setup) -> Trajectory:
    """Solves the problem. Differentiable in forward mode; `_adjoint` adds reverse mode."""
    return _staged.integrate(problem, setup) if problem.lags else _planned.integrate(problem, setup)


def walk_back(trajectory: Trajectory, bars: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    """The transpose of `integrate`: (the cotangent of the problem's perturbed variables, the evaluations it took)."""
    walk = _staged.walk_back if problem.lags else _planned.walk_back
    return walk(trajectory, bars, problem, perturbed, setup)
