"""A solve in bounded memory with its exact derivative: segments are taken once more, and walked backwards."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._bytes import check_fits
from .._planned import empty_output, integrate_bounded, walk_back_bounded
from .._problem import Problem
from .._setup import UNLIMITED, Setup
from .._trajectory import Trajectory
from ._base import is_asked, once_only, without_tangents
from ._count import tell


def solve_bounded(problem: Problem, setup: Setup, ts):
    """(The trajectory, the states at `ts`), differentiable in reverse mode."""
    variables, constants = eqx.partition(problem, eqx.is_inexact_array)
    trajectory, ys = _solve((variables, ts), constants, setup)
    return without_tangents(trajectory), ys


def without_past(trajectory: Trajectory) -> Trajectory:
    """What others than a backward pass may read."""
    return dataclasses.replace(trajectory, past=None, record=None, sources=None)


@eqx.filter_custom_vjp
def _solve(inputs, constants: Problem, setup: Setup):
    variables, ts = inputs
    trajectory, ys, _ = integrate_bounded(eqx.combine(variables, constants), setup, ts)
    return without_past(trajectory), ys


@_solve.def_fwd
def _solve_fwd(perturbed, inputs, constants, setup):
    if setup.max_steps == UNLIMITED:
        raise ValueError(
            "got max_steps = None in a solve that is differentiated backwards, expected a number: the times of all steps "
            "are kept, pass max_steps"
        )
    variables, ts = inputs
    recording = dataclasses.replace(setup, keep=dataclasses.replace(setup.keep, record=True))
    problem = eqx.combine(variables, constants)
    check_fits(problem, recording, ts, gradient=True)
    trajectory, ys, snapshots = integrate_bounded(problem, recording, ts)
    return once_only((without_past(trajectory), ys)), (trajectory, snapshots)


@_solve.def_bwd
def _solve_bwd(residuals, cotangent: Any, perturbed, inputs, constants, setup):
    trajectory, snapshots = residuals
    trajectory_bar, ys_bar = cotangent
    variables, ts = inputs
    problem = eqx.combine(variables, constants)
    fill = lambda bar, like: jnp.zeros_like(like) if bar is None else bar
    y_end_bar, t_end_bar = trajectory_bar.y_end, trajectory_bar.t_end
    given = (
        fill(y_end_bar, trajectory.y_end),
        fill(t_end_bar, trajectory.t_end),
        fill(ys_bar, empty_output(problem, ts)),
        is_asked((y_end_bar, t_end_bar, ys_bar)),
    )
    total, ts_bar, evaluations = walk_back_bounded(trajectory, snapshots, given, problem, ts, perturbed[0], setup)
    tell(evaluations)
    return once_only((eqx.combine(total, jax.tree.map(jnp.zeros_like, variables)), ts_bar))
