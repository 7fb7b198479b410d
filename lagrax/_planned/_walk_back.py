"""The backward pass over planned steps.

With the mesh and its lookups frozen, the solve is a recurrence: row i is a function of y_i, of the rows that its stages
looked up, of the times of its two mesh points and of the problem. The backward loop applies the transpose of each step in
turn, adding the cotangents of the delayed states into the rows they came from: O(1) work per step. The mesh points that
are breakpoints move with the delays (`root + m · τ`), the last one with t1; the others do not.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Inexact, Int

from .._method._step import start_slope, take_step
from .._past import add_rows, join_rows, make_row, row_end, row_start, row_state, split_rows, write_interval
from .._problem import Problem
from .._results import failed
from .._setup import Setup
from .._trajectory import Cotangents, Trajectory, add_to, spoil
from .._xla._buffer import read
from .._xla._compat import unvmap_max
from .._xla._kernel import in_one_kernel
from ._breakpoints import mesh_cotangents, sides_at
from ._lookup import delayed_states, query_times


def walk_back(trajectory: Trajectory, bars: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    """(The cotangent of the problem's perturbed variables, how often the vector field was evaluated)."""
    # What is not differentiated costs nothing: most often that is the times, and with them the motion of the mesh.
    moving = any(jax.tree.leaves((perturbed.delays, perturbed.t0, perturbed.t1, perturbed.jump_ts)))
    rows_bar, y_bar, total = in_one_kernel(walk, trajectory, bars, problem, perturbed, moving, setup)
    if moving:
        total = _move_mesh(trajectory, rows_bar, bars, total)
    return add_to(total, lambda p: (p.y0,), (y_bar,)), trajectory.count * setup.method.stages


def walk(trajectory: Trajectory, bars: Cotangents, problem: Problem, perturbed: Any, moving: bool, setup: Setup, first=0):
    """Cotangents of the rows (with `moving`, complete in their times too), of the state at the start of step `first` and of
    the problem's perturbed leaves."""
    method, record, past = setup.method, trajectory.record, trajectory.past
    assert record is not None and past is not None, "a solve that is differentiated keeps both"
    # (`perturbed` has the structure of the variables alone.)
    variables, constants = eqx.partition(problem, eqx.is_inexact_array)
    variables, fixed = eqx.partition(variables, perturbed)
    constants = eqx.combine(constants, fixed)
    rows = past.rows

    def transpose_step(i: Int[Array, ""], y_bar, row_bar: Inexact[Array, " row"]):
        links, pointers, known = record.read(i)
        jump = record.jump_at(i) if problem.kicks is not None else None
        known = None if known is None else known.reshape(method.stages, -1)
        row = read(rows, i)
        y = row_state(row, problem.y0)
        intervals, coefficients = split_rows(past.read(links))
        times = (row_start(row), row_end(row), intervals)
        sides = sides_at(trajectory.sources, pointers, problem)

        def step(times, y, coefficients, variables):
            problem = eqx.combine(variables, constants)
            return _taken_again(problem, setup, times, y, coefficients, (links, sides, known, jump), rows.dtype)

        if moving:
            _, transpose = jax.vjp(step, times, y, coefficients, variables)
            (*ends_bar, intervals_bar), y_bar, coefficients_bar, variables_bar = transpose((y_bar, row_bar))
        else:
            _, transpose = jax.vjp(lambda *others: step(times, *others), y, coefficients, variables)
            y_bar, coefficients_bar, variables_bar = transpose((y_bar, row_bar))
            ends_bar, intervals_bar = times[:2], jnp.zeros_like(intervals)
        past_bar = join_rows(intervals_bar, coefficients_bar, rows.dtype)
        return links, y_bar, past_bar, jnp.stack(ends_bar), variables_bar

    def body(carry):
        k, y_bar, row_bar, rows_bar, total = carry
        i = trajectory.count - 1 - k
        active = i >= first
        i = jnp.maximum(i, first)
        masked = lambda x: jnp.where(active, x, jnp.zeros_like(x))
        links, new_y_bar, past_bar, times_bar, variables_bar = transpose_step(i, masked(y_bar), masked(row_bar))
        y_bar = jnp.where(active, new_y_bar, y_bar)
        if moving:
            times_bar = jnp.where(active, times_bar, split_rows(row_bar)[0])
            rows_bar = write_interval(rows_bar, i, times_bar)
        rows_bar = add_rows(rows_bar, jnp.maximum(links, 0).reshape(-1), past_bar.reshape(-1, rows_bar.shape[1]))
        total = jax.tree.map(jnp.add, total, variables_bar)
        # Read after the writes (`_loop.py` says why).
        return k + 1, y_bar, read(rows_bar, jnp.maximum(i - 1, 0)), rows_bar, total

    zeros = jax.tree.map(jnp.zeros_like, variables)
    last = jnp.maximum(trajectory.count - 1, 0)
    steps = unvmap_max(trajectory.count - first if first else trajectory.count)
    init = (jnp.zeros((), jnp.int32), bars.y_end, read(bars.rows, last), bars.rows, zeros)
    _, y_bar, _, rows_bar, total = lax.while_loop(lambda carry: carry[0] < steps, body, init)
    return rows_bar, *spoil((y_bar, total), failed(trajectory.result), bars.asked)


def _taken_again(problem: Problem, setup: Setup, times, y, coefficients, note, dtype):
    """A step as it was recorded: (the state at its end, its row)."""
    (t, t_end, intervals), (links, sides, known, jump) = times, note
    queries = query_times(setup.method, t, t_end, problem.delays)
    delayed = delayed_states(problem, setup.method, queries, links, intervals, coefficients, sides)
    slope = start_slope(problem, t, y, delayed, known)
    step = take_step(setup.solver, setup.method, problem, t, t_end, y, slope, delayed, known)
    y_end = step.y_end if problem.kicks is None else problem.kicked(jump, t_end, step.y_end)
    return y_end, make_row(setup.method, t, t_end, y, step.increments, dtype)


def _move_mesh(trajectory: Trajectory, rows_bar, bars: Cotangents, problem_bar: Any) -> Problem:
    """Hands the cotangents of the mesh points on to the delays, the declared jumps, t0 and t1."""
    record: Any = trajectory.record
    count, steps = trajectory.count, jnp.arange(len(record.links), dtype=jnp.int32)
    taken = lambda x: jnp.where(steps < count, x, 0)
    starts_bar, ends_bar = taken(row_start(rows_bar)), taken(row_end(rows_bar))
    # Mesh point i + 1 ends step i and starts step i + 1.
    points_bar = ends_bar + jnp.append(starts_bar[1:], 0) + jnp.where(steps == count - 1, bars.t_end, 0)
    delays_bar, roots_bar, t1_bar = mesh_cotangents(trajectory.sources, record.depends_on, taken(points_bar))
    times_bar = (delays_bar, roots_bar[-1] + starts_bar[0], t1_bar, roots_bar[:-1])
    times_bar = spoil(times_bar, failed(trajectory.result), bars.asked)
    return add_to(problem_bar, lambda p: (p.delays, p.t0, p.t1, p.jump_ts), times_bar)
