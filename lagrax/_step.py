"""One Runge–Kutta step over delayed states that have already been looked up.

A step never outruns the smallest delay, so what its stages see of the past is known before it starts: it is looked up for
all stages at once, and the step itself is that of an ordinary differential equation.
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from ._history import combine
from ._method import Method
from ._problem import Problem


class Step(eqx.Module):
    """What a step from (t, y) to t_end found.

    `increments` are the stages `h f_j`, `slope_end` the last of the `f_j`, `error` the local error estimate (None if the
    method has none), `result` the verdict of the implicit solver (always success for an explicit one).
    """

    y_end: Inexact[Array, " d"]
    error: Inexact[Array, " d"] | None
    increments: list[Inexact[Array, " d"]]
    slope_end: Inexact[Array, " d"]
    result: dfx.RESULTS


def take_step(
    solver: dfx.AbstractSolver,
    method: Method,
    problem: Problem,
    t: Float[Array, ""],
    t_end: Float[Array, ""],
    y: Inexact[Array, " d"],
    slope: Inexact[Array, " d"],
    delayed: Inexact[Array, "stages n d"],
) -> Step:
    """A step from (t, y), where the vector field has the value `slope`, to t_end."""
    if method.implicit:
        return _diffrax_step(solver, method, problem, t, t_end, y, slope, delayed)
    return _explicit_step(method, problem, t, t_end, y, slope, delayed)


LOOP = True


def _explicit_step(method, problem, t, t_end, y, slope, delayed) -> Step:
    if not LOOP:
        return _unrolled_step(method, problem, t, t_end, y, slope, delayed)
    h = (t_end - t).astype(y.dtype)
    S = method.stages
    table = np.zeros((S, S))
    for i, row in enumerate(method.a):
        table[i + 1, : i + 1] = row
    table = jnp.asarray(table, y.dtype)
    c = jnp.asarray(method.c, t.dtype)
    nodes = jnp.where(c == 1, t_end, t + c * (t_end - t))
    slopes = jnp.zeros((S, y.size), y.dtype).at[0].set(slope)

    def stage(i, slopes):
        a = jax.lax.dynamic_index_in_dim(table, i, keepdims=False)
        node = jax.lax.dynamic_index_in_dim(nodes, i, keepdims=False)
        z = jax.lax.dynamic_index_in_dim(delayed, i, keepdims=False)
        yi = y + h * jnp.sum(a[:, None] * slopes, 0)
        k = problem.field(node, yi, z)
        return jax.lax.dynamic_update_index_in_dim(slopes, k, i, 0)

    slopes = jax.lax.fori_loop(1, S, stage, slopes)
    slopes = list(slopes)
    y_end = y + h * combine(method.b, slopes)
    error = None if method.b_error is None else h * combine(method.b_error, slopes)
    return Step(y_end, error, [h * slope for slope in slopes], slopes[-1], dfx.RESULTS.successful)


def _unrolled_step(method, problem, t, t_end, y, slope, delayed) -> Step:
    # Stages unrolled from the tableau rather than `solver.step`: about half the time of a gradient for small states.
    h = (t_end - t).astype(y.dtype)
    slopes = [slope]
    for a, c, z in zip(method.a, method.c[1:], delayed[1:], strict=True):
        node = t_end if c == 1 else t + float(c) * (t_end - t)
        slopes.append(problem.field(node, y + h * combine(a, slopes), z))
    y_end = y + h * combine(method.b, slopes)
    error = None if method.b_error is None else h * combine(method.b_error, slopes)
    return Step(y_end, error, [h * slope for slope in slopes], slopes[-1], dfx.RESULTS.successful)


def _diffrax_step(solver, method, problem, t, t_end, y, slope, delayed) -> Step:
    nodes = t + jnp.asarray(method.c, t.dtype) * (t_end - t)

    def field(s, state, args):
        # An implicit stage asks again and again at its own node, which tells what it sees of the past.
        return problem.field(s, state, delayed[jnp.argmin(jnp.abs(nodes - s))])

    reused = (jnp.array(False), slope)
    y_end, error, dense, (_, slope_end), result = solver.step(dfx.ODETerm(field), t, t_end, y, None, reused, False)
    return Step(y_end, error, list(dense["k"]), slope_end, result)
