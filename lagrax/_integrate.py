"""Which loop solves a problem."""

from importlib import import_module
from typing import Any

from ._problem import Problem
from ._setup import Setup
from ._trajectory import Cotangents, Trajectory


def integrate(problem: Problem, setup: Setup) -> Trajectory:
    """Solves the problem. Differentiable in forward mode; `_adjoint` adds reverse mode."""
    return _module(problem, "_loop").integrate(problem, setup)


def walk_back(trajectory: Trajectory, bars: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    """The transpose of `integrate`: (the cotangent of the problem's perturbed variables, the evaluations it took)."""
    return _module(problem, "_walk_back").walk_back(trajectory, bars, problem, perturbed, setup)


def _module(problem: Problem, name: str) -> Any:
    """Of the package that solves it, imported when it is needed: most programs need one, and each takes up to 0.08 s."""
    package = "_planned" if not problem.lags else "_staged"
    if problem.network is not None:
        package = "_network"
    return import_module(f".{package}.{name}", __package__)
