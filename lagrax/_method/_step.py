"""One Runge–Kutta step over delayed states that have already been looked up.

A step never outruns the smallest delay, so what its stages see of the past is known before it starts: it is looked up for
all stages at once, and the step itself is that of an ordinary differential equation.
"""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact

from .._problem import Problem
from .._xla._neighbours import inside, just_after, just_before
from ._tableau import Method, combine, node_times

FEW = 64
"""Steps of up to so many floats are not solved for: their stages would be noise."""


class Step(eqx.Module):
    """What a step from (t, y) to t_end found.

    `increments` are the stages `h f_j`, `slopes` the `f_j` (none for an implicit method), `slope_end` the one at t_end,
    `error` the local error estimate (None if the method has none), `result` the verdict of the implicit solver (always
    success for an explicit one).
    """

    y_end: Inexact[Array, " d"]
    error: Inexact[Array, " d"] | None
    increments: list[Inexact[Array, " d"]]
    slopes: list[Inexact[Array, " d"]]
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
    delayed: Inexact[Array, "nodes *seen"],
    known: Inexact[Array, "stages d"] | None = None,
) -> Step:
    """A step from (t, y), where the vector field has the value `slope`, to t_end.

    A step taken again in order to differentiate it may be given its slopes, as `known` (explicit methods only).
    """
    if method.implicit:
        nodes = t + jnp.asarray(method.nodes, t.dtype) * (t_end - t)
        # An implicit stage asks again and again at its own node, which tells what it sees of the past.
        see = lambda s, time, state: delayed[jnp.argmin(jnp.abs(nodes - s))]
        return implicit_step(solver, method, problem, t, t_end, y, slope, see)
    return _explicit_step(method, problem, t, t_end, y, slope, delayed, known)


def with_output_error(step: Step, method: Method, problem: Problem, t, t_end, y, delayed) -> Step:
    """The step with an error estimate that covers the dense output too, for methods whose own does not (`Method.probe`)."""
    if method.probe is None or step.error is None:
        return step
    seen = delayed[int(np.searchsorted(method.nodes, method.probe[0]))]
    error = output_error(step, method, problem, t, t_end, y, seen)
    return eqx.tree_at(lambda s: s.error, step, error)


def output_error(step: Step, method: Method, problem: Problem, t, t_end, y, delayed: Any):
    """The larger of a step's own error estimate and that of its dense output, where `delayed` is seen at the probe."""
    theta, scale = method.probe  # type: ignore[misc]
    coefficients = [combine(weights, step.increments) for weights in method.dense]
    value = y + sum(theta**k * coefficient for k, coefficient in enumerate(coefficients, start=1))
    slope = sum(k * theta ** (k - 1) * coefficient for k, coefficient in enumerate(coefficients, start=1))
    h = t_end - t
    defect = h.astype(y.dtype) * problem.field(t + theta * h, value, delayed) - slope
    own: Any = step.error
    return jnp.maximum(jnp.abs(own), scale * jnp.abs(defect)).astype(y.dtype)


def start_slope(problem: Problem, t, y, delayed: Inexact[Array, "nodes *seen"], known=None) -> Inexact[Array, " d"]:
    """The vector field at the start of a step."""
    return _slope(problem, just_after(t), y, delayed[0], known, 0)


@eqx.filter_custom_jvp
def turned(slope: Inexact[Array, " d"], inputs: tuple) -> Inexact[Array, " d"]:
    """The slope at a kink, a limit from the left, with the derivative of that from the right, `start_slope(*inputs)`.

    The two have one value. But where equal delays see a kink each, one of them moves and the other does not, so that the
    derivative depends on the side, and a step is differentiated on one side.
    """
    return slope


@turned.def_jvp
def _turned_jvp(primals, tangents):
    slope, inputs = primals
    moving = jax.tree.map(lambda x: x is not None, tangents[1], is_leaf=lambda x: x is None)
    variables, constants = eqx.partition(inputs, moving)
    fresh = lambda variables: start_slope(*eqx.combine(variables, constants))
    return turned(slope, inputs), jax.jvp(fresh, (variables,), (tangents[1],))[1]


def _slope(problem: Problem, t, y, delayed: Inexact[Array, "*seen"], known, stage: int) -> Inexact[Array, " d"]:
    """The vector field, or its known value with the field's derivative."""
    return problem.field(t, y, delayed) if known is None else _recall((problem, t, y, delayed, known[stage]))


@eqx.filter_custom_vjp
def _recall(inputs) -> Inexact[Array, " d"]:
    """`problem.field(t, y, delayed)` of `inputs = (problem, t, y, delayed, value)`, whose value is known."""
    return inputs[-1]


@_recall.def_fwd
def _recall_fwd(perturbed, inputs):
    return inputs[-1], None


@_recall.def_bwd
def _recall_bwd(residuals, value_bar, perturbed, inputs):
    variables, constants = eqx.partition(inputs, perturbed)

    def field(variables):
        problem, t, y, delayed, _ = eqx.combine(variables, constants)
        return problem.field(t, y, delayed)

    return jax.vjp(field, variables)[1](value_bar)[0]


def _explicit_step(method, problem, t, t_end, y, slope, delayed, known) -> Step:
    # Stages unrolled from the tableau, not looped over as in `solver.step`: half the time for a batch of 1,000 lanes.
    h = (t_end - t).astype(y.dtype)
    slopes = [slope]
    times, delayed = jnp.unstack(inside(node_times(method, t, t_end), t, t_end)), jnp.unstack(delayed)
    for a, node in zip(method.a, method.node_of[1:], strict=True):
        slopes.append(_slope(problem, times[node], y + h * combine(a, slopes), delayed[node], known, len(slopes)))
    y_end = y + h * combine(method.b, slopes)
    error = None if method.b_error is None else h * combine(method.b_error, slopes)
    success: Any = dfx.RESULTS.successful
    return Step(y_end, error, [h * slope for slope in slopes], slopes, slopes[method.end], success)


def _next_jump(problem: Problem, t: Float[Array, ""]) -> Float[Array, ""]:
    """The first declared jump at or after t; if there is none, the last float."""
    ahead = jnp.searchsorted(problem.jump_ts, lax.stop_gradient(t), side="left")
    jumps = problem.jump_ts if problem.kicks is None else jnp.minimum(problem.jump_ts, jnp.finfo(t.dtype).max)
    never = jnp.full(1, jnp.finfo(t.dtype).max, t.dtype)
    return jnp.concatenate([jumps, never])[ahead]


def implicit_step(solver, method, problem, t, t_end, y, slope, see: Callable) -> Step:
    """Diffrax's step. `see(s, time, state)` gives the delayed states seen from the stage at time s, the field's time there
    being `time`."""
    last = just_before(_next_jump(problem, t_end)) if method.reach > 1 and problem.jump_ts.size else jnp.inf

    def field(s, state, args):
        # A stage past the end of the step must not see the field after a jump: it stays before it, in time.
        time = jnp.minimum(inside(s, t, t_end), last)
        return problem.field(time, state, see(s, time, state))

    # Between breakpoints at one time there are steps of no length, or of a few floats, by which diffrax would divide.
    near = FEW * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t_end))
    short = lax.stop_gradient(t_end - t <= near)
    end = t_end + lax.stop_gradient(jnp.where(short, jnp.sqrt(jnp.finfo(t.dtype).eps) * jnp.maximum(jnp.abs(t), 1), 0))
    reused = (jnp.array(False), slope)
    y_end, error, dense, (_, slope_end), result = solver.step(dfx.ODETerm(field), t, end, y, None, reused, False)
    step = Step(y_end, error, list(dense["k"]), [], slope_end, result)
    return _unless(short, step, y, (t_end - t) * slope, slope)


def _unless(short, step: Step, y, increment, slope) -> Step:
    """The step, or where it is `short` one along the slope, which moves with its ends as any other."""
    success: Any = dfx.RESULTS.successful
    increment = increment.astype(y.dtype)
    return Step(
        y_end=jnp.where(short, y + increment, step.y_end),
        error=None if step.error is None else jnp.where(short, 0, step.error),
        increments=[jnp.where(short, increment, other) for other in step.increments],
        slopes=step.slopes,
        slope_end=jnp.where(short, slope, step.slope_end),
        result=dfx.RESULTS.where(short, success, step.result),
    )
