"""Discretise, then optimise: the exact derivative of the steps that were taken, walked backwards.

With the mesh and its lookups frozen, the solve is a recurrence: row i is a function of y_i, of the rows that its stages
looked up, of the times of its two mesh points and of the problem. The backward loop applies the transpose of each step in
turn, adding the cotangents of the delayed states into the rows they came from: O(1) work per step. The mesh points that
are breakpoints move with the delays (`root + m · τ`), the last one with t1; the others do not.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact, Int

from .._breakpoints import mesh_cotangents, sides_at
from .._buffer import read, write
from .._compat import unvmap_max
from .._history import delayed_states, make_row, query_times, read_rows, split_rows
from .._kernel import in_one_kernel
from .._loop import Trajectory, integrate
from .._problem import Problem
from .._setup import Setup
from .._solution import failed
from .._step import start_slope, take_step
from ._base import AbstractAdjoint, count_evaluations, is_asked, observe, spoil, with_tally, without_tangents


class DiscreteAdjoint(AbstractAdjoint):
    """Reverse mode by walking the accepted steps backwards (the default).

    Gives the exact gradient of what was computed (for implicit solvers, up to the tolerance of their root finder) with
    respect to `args`, the history and what it closes over, `y0`, every delay, `t0`, `t1`, `jump_ts` and `ts`. Time is
    proportional to the number of steps, memory to `max_steps`. `jax.hessian` (forward over reverse) works too.
    """

    tally: Any = None
    """A scalar array, or None. Its gradient is the number of times the backward pass evaluated the vector field."""

    keep_stages: bool = eqx.field(static=True, default=False)
    """Whether to remember the vector field's value at every stage of every step, rather than evaluate it again on the way
    back. It takes the memory of `stages` more states per step (Tsit5: 7), and spares only what a gradient of the field does
    not compute anyway: it pays for a field under `jax.checkpoint`, as `nn.ImageField` is. Implicit solvers do without."""

    def solve(self, problem, setup, ts):
        setup = dataclasses.replace(setup, keep_stages=self.keep_stages)
        # Only inexact arrays are differentiated; everything else of the problem is carried along.
        variables, constants = eqx.partition(with_tally(problem, self.tally), eqx.is_inexact_array)
        trajectory = without_tangents(_solve(variables, constants, setup))
        return trajectory, observe(trajectory, ts, problem)


@eqx.filter_custom_vjp
def _solve(variables: Problem, constants: Problem, setup: Setup) -> Trajectory:
    return in_one_kernel(_solution, eqx.combine(variables, constants), setup)


def _solution(problem: Problem, setup: Setup) -> Trajectory:
    return _handed_over(integrate(problem, setup), setup)


def _handed_over(trajectory: Trajectory, setup: Setup) -> Trajectory:
    """What others than the backward pass may read."""
    read = trajectory if setup.hand_over else dataclasses.replace(trajectory, rows=None, starts=None, sources=None)
    return dataclasses.replace(read, links=None, slopes=None)


@_solve.def_fwd
def _solve_fwd(perturbed, variables, constants, setup):
    recording = dataclasses.replace(setup, record=True)
    trajectory = in_one_kernel(integrate, eqx.combine(variables, constants), recording)
    return _handed_over(trajectory, setup), trajectory


@_solve.def_bwd
def _solve_bwd(trajectory: Trajectory, cotangent: Any, perturbed, variables, constants, setup) -> Problem:
    fill = lambda ct, like: jnp.zeros_like(like) if ct is None else ct
    rows_bar = fill(cotangent.rows, trajectory.rows)
    y_bar = fill(cotangent.y_end, trajectory.y_end)
    problem = eqx.combine(variables, constants)
    # What is not differentiated costs nothing: most often that is the times, and with them the motion of the mesh.
    moving = any(jax.tree.leaves((perturbed.delays, perturbed.t0, perturbed.t1, perturbed.jump_ts)))
    asked = is_asked((cotangent.rows, cotangent.t_end))
    rows_bar, y_bar, total, bad = in_one_kernel(
        _walk_back, trajectory, rows_bar, y_bar, asked, problem, perturbed, moving, setup
    )
    problem_bar = eqx.combine(total, jax.tree.map(jnp.zeros_like, variables))
    if moving:
        t_end_bar = fill(cotangent.t_end, trajectory.t_end)
        problem_bar = _move_mesh(trajectory, rows_bar, t_end_bar, bad, problem_bar)
    problem_bar = eqx.tree_at(lambda p: p.y0, problem_bar, problem_bar.y0 + y_bar)
    return count_evaluations(problem_bar, trajectory.count * setup.method.stages)


def _walk_back(trajectory: Trajectory, rows_bar, y_bar, asked, problem: Problem, perturbed: Any, moving: bool, setup: Setup):
    """Cotangents of the rows (with `moving`, complete in their times too), of y0 and of the problem's perturbed leaves, and
    whether they are NaN because the solve failed. `asked`: whether `rows_bar` or another cotangent is not zero."""
    method, n, nodes = setup.method, problem.delays.size, len(setup.method.nodes)
    # (`perturbed` has the structure of the variables alone.)
    variables, constants = eqx.partition(problem, eqx.is_inexact_array)
    variables, fixed = eqx.partition(variables, perturbed)
    constants = eqx.combine(constants, fixed)
    sources, rows = trajectory.sources, trajectory.rows
    cut = nodes * n

    def replay(times, y, coefficients, variables, links, pointers, known):
        t, t_end, intervals = times
        problem = eqx.combine(variables, constants)
        sides = sides_at(sources.times, sources.start, pointers)
        queries = query_times(method, t, t_end, problem.delays)
        delayed = delayed_states(problem, method, queries, links, intervals, coefficients, sides)
        slope = start_slope(problem, t, y, delayed, known)
        step = take_step(setup.solver, method, problem, t, t_end, y, slope, delayed, known)
        return step.y_end, make_row(method, t, t_end, y, step.increments, rows.dtype)

    def transpose_step(i: Int[Array, ""], y_bar, row_bar: Inexact[Array, " row"]):
        link = read(trajectory.links, i)
        links = link[:cut].reshape(nodes, n)
        pointers = link[cut : cut + n]
        row = read(rows, i)
        y = row[2 : 2 + problem.y0.size].astype(problem.y0.dtype)
        intervals, coefficients = split_rows(read_rows(rows, links))
        times = (row[0].real, row[1].real, intervals)
        known = None if trajectory.slopes is None else read(trajectory.slopes, i).reshape(method.stages, -1)
        if moving:
            step = lambda times, y, coefficients, variables: replay(
                times, y, coefficients, variables, links, pointers, known
            )
            _, transpose = jax.vjp(step, times, y, coefficients, variables)
            (*ends_bar, intervals_bar), y_bar, coefficients_bar, variables_bar = transpose((y_bar, row_bar))
        else:
            fixed_times = lambda y, coefficients, variables: replay(
                times, y, coefficients, variables, links, pointers, known
            )
            _, transpose = jax.vjp(fixed_times, y, coefficients, variables)
            y_bar, coefficients_bar, variables_bar = transpose((y_bar, row_bar))
            ends_bar, intervals_bar = times[:2], jnp.zeros_like(intervals)
        past_bar = jnp.concatenate([intervals_bar.astype(rows.dtype), coefficients_bar], axis=-1)
        return links, y_bar, past_bar, jnp.stack(ends_bar).astype(rows.dtype), variables_bar

    def body(carry):
        k, y_bar, row_bar, rows_bar, total = carry
        i = trajectory.count - 1 - k
        active = i >= 0
        i = jnp.maximum(i, 0)
        masked = lambda x: jnp.where(active, x, jnp.zeros_like(x))
        links, new_y_bar, past_bar, times_bar, variables_bar = transpose_step(i, masked(y_bar), masked(row_bar))
        y_bar = jnp.where(active, new_y_bar, y_bar)
        if moving:
            times_bar = jnp.where(active, times_bar, row_bar[:2])
            rows_bar = lax.dynamic_update_slice(rows_bar, times_bar[None], (i, jnp.zeros_like(i)))
        rows_bar = _add_rows(rows_bar, jnp.maximum(links, 0).reshape(-1), past_bar.reshape(-1, rows_bar.shape[1]))
        total = jax.tree.map(jnp.add, total, variables_bar)
        # Read after the writes (`_loop.py` says why).
        return k + 1, y_bar, read(rows_bar, jnp.maximum(i - 1, 0)), rows_bar, total

    zeros = jax.tree.map(jnp.zeros_like, variables)
    last = jnp.maximum(trajectory.count - 1, 0)
    steps = unvmap_max(trajectory.count)
    init = (jnp.zeros((), jnp.int32), y_bar, read(rows_bar, last), rows_bar, zeros)
    bad = failed(trajectory.result) & (asked | jnp.any(y_bar != 0))
    _, y_bar, _, rows_bar, total = lax.while_loop(lambda carry: carry[0] < steps, body, init)
    return rows_bar, *spoil((y_bar, total), bad), bad


def _add_rows(rows, numbers: Int[Array, " k"], values: Inexact[Array, "k row"]):
    """Adds each of `values` to its row. (A scatter would do the same, but keeps XLA from compiling a small loop as one
    kernel.)"""

    def add(j, rows):
        number = read(numbers, j)
        return write(rows, number, read(rows, number) + read(values, j))

    return lax.fori_loop(jnp.int32(0), jnp.int32(len(numbers)), add, rows)


def _move_mesh(trajectory: Trajectory, rows_bar, t_end_bar, bad, problem_bar: Problem) -> Problem:
    """Hands the cotangents of the mesh points on to the delays, the declared jumps, t0 and t1."""
    count, steps = trajectory.count, jnp.arange(len(trajectory.links), dtype=jnp.int32)
    taken = lambda x: jnp.where(steps < count, x, 0)
    starts_bar, ends_bar = taken(rows_bar[:, 0].real), taken(rows_bar[:, 1].real)
    # Mesh point i + 1 ends step i and starts step i + 1.
    points_bar = ends_bar + jnp.append(starts_bar[1:], 0) + jnp.where(steps == count - 1, t_end_bar, 0)
    delays_bar, roots_bar, t1_bar = mesh_cotangents(trajectory.sources, trajectory.links[:, -1], taken(points_bar))
    moved = (
        problem_bar.delays + delays_bar,
        problem_bar.t0 + roots_bar[-1] + starts_bar[0],
        problem_bar.t1 + t1_bar,
        problem_bar.jump_ts + roots_bar[:-1],
    )
    return eqx.tree_at(lambda p: (p.delays, p.t0, p.t1, p.jump_ts), problem_bar, spoil(moved, bad))
