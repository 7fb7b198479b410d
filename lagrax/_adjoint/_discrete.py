"""Discretise, then optimise: the exact derivative of the steps that were taken, walked backwards (`_walk_back.py` of each
loop)."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._bytes import check_fits
from .._integrate import integrate, walk_back
from .._problem import Problem
from .._setup import Setup
from .._trajectory import Cotangents, Trajectory
from .._xla._buffer import LARGE
from .._xla._kernel import in_one_kernel
from ._base import AbstractAdjoint, is_asked, observe, once_only, without_tangents
from ._bounded import solve_bounded
from ._count import tell


class DiscreteAdjoint(AbstractAdjoint):
    """Reverse mode by walking the accepted steps backwards (the default).

    Gives the exact gradient of what was computed (for implicit solvers, up to the tolerance of their root finder) with
    respect to `args`, the history and what it closes over, `y0`, every delay, `t0`, `t1`, `jump_ts` and `ts`. Time is
    proportional to the number of steps, memory to `max_steps`, or with bounded `memory` to the square root of its product
    with the number of rows (and the times of all steps); then steps are taken once more. `jax.hessian` (forward over
    reverse) works too.
    """

    keep_stages: bool = eqx.field(static=True, default=False)
    """Whether to remember the vector field's value at every stage of every step, rather than evaluate it again on the way
    back. It takes the memory of `stages` more states per step (Tsit5: 7), and spares only what a gradient of the field does
    not compute anyway: it pays for a field under `jax.checkpoint`, as `nn.ImageField` is. Implicit solvers do without."""

    def solve(self, problem, setup, ts):
        check_fits(problem, setup, ts, gradient=False)
        if setup.memory is not None:
            return solve_bounded(problem, setup, ts)
        setup = dataclasses.replace(setup, keep=dataclasses.replace(setup.keep, slopes=self.keep_stages))
        # Only inexact arrays are differentiated; everything else of the problem is carried along.
        variables, constants = eqx.partition(problem, eqx.is_inexact_array)
        trajectory = without_tangents(_solve(variables, constants, setup))
        return trajectory, observe(trajectory, ts, problem)


@eqx.filter_custom_vjp
def _solve(variables: Problem, constants: Problem, setup: Setup) -> Trajectory:
    return in_one_kernel(_solution, eqx.combine(variables, constants), setup)


def _solution(problem: Problem, setup: Setup) -> Trajectory:
    return _readable(integrate(problem, setup), setup)


def _readable(trajectory: Trajectory, setup: Setup) -> Trajectory:
    """What others than the backward pass may read."""
    read = trajectory if setup.keep.steps else dataclasses.replace(trajectory, past=None, sources=None)
    return dataclasses.replace(read, record=None)


@_solve.def_fwd
def _solve_fwd(perturbed, variables, constants, setup):
    recording = dataclasses.replace(setup, keep=dataclasses.replace(setup.keep, record=True))
    problem = eqx.combine(variables, constants)
    check_fits(problem, recording, jnp.zeros(0), gradient=True)
    trajectory = in_one_kernel(integrate, problem, recording)
    return once_only(_readable(trajectory, setup)), trajectory


@_solve.def_bwd
def _solve_bwd(trajectory: Trajectory, cotangent: Any, perturbed, variables, constants, setup) -> Problem:
    fill = lambda ct, like: jnp.zeros_like(like) if ct is None else ct
    past: Any = trajectory.past
    rows_bar = None if cotangent.past is None else cotangent.past.rows
    sources_bar = None if cotangent.sources is None else cotangent.sources.times
    bars = Cotangents(
        rows=fill(rows_bar, past.rows),
        sources=sources_bar,
        y_end=fill(cotangent.y_end, trajectory.y_end),
        t_end=fill(cotangent.t_end, trajectory.t_end),
        asked=is_asked((rows_bar, sources_bar, cotangent.t_end, cotangent.y_end)),
    )
    if past.rows.nbytes > LARGE:
        # If nothing is asked, no step is walked back. Without this XLA could look whether anything is while cotangents are
        # already being added to those of the rows, and would copy them for it.
        trajectory = dataclasses.replace(trajectory, count=jnp.where(bars.asked, trajectory.count, 0))
    total, evaluations = walk_back(trajectory, bars, eqx.combine(variables, constants), perturbed, setup)
    tell(evaluations)
    return once_only(eqx.combine(total, jax.tree.map(jnp.zeros_like, variables)))
