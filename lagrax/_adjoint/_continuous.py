"""Optimise, then discretise: the gradient as the paper's Theorem 1 has it, from the costate's own delay equation.

With the forward solution y and the costate λ (`_costate.py`), the gradient with respect to anything that the vector field or
the history depends on, the delays included, is the derivative of ∫ λᵀ f(t, y(t), z(t)) dt with y and λ held fixed:

    dL/dθ = ∫ λᵀ f_θ dt + Σ_j ∫ λᵀ f_{z_j} ∂φ(t - τ_j)/∂θ dt,     dL/dτ_j = -∫ λᵀ f_{z_j} y'(t - τ_j) dt + jumps,

the second sum over t < t0 + τ_j, where z_j is the initial function φ. The integrals are computed by Gauss's rule between
the mesh points of y and λ, where everything is smooth. Where z_j jumps as t passes ξ + τ_j, moving that time by dτ_j adds
λ(ξ + τ_j⁺)ᵀ [f(z_j = y(ξ⁻)) - f(z_j = y(ξ⁺))].
"""

import dataclasses
import functools as ft
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from .._bytes import check_fits
from .._check import check_steps
from .._integrate import integrate
from .._output._dense import DenseSolution
from .._planned._breakpoints import root_times
from .._problem import Problem
from .._results import failed
from .._setup import Setup, make_setup
from .._trajectory import Trajectory, spoil
from .._xla._compat import nondifferentiable_backward, unvmap_max
from .._xla._compiled import compiled
from .._xla._neighbours import just_after, just_before
from ._base import AbstractAdjoint, is_asked, observe, once_only, without_tangents
from ._costate import Costate, Forward, gather_observations, solve_costate
from ._count import tell


class ContinuousAdjoint(AbstractAdjoint):
    """Reverse mode by the adjoint delay equation of the paper's Theorem 1, itself solved as a delay equation.

    Differentiates the states saved at t0, `ts` and t1 with respect to `args`, the history, `y0`, every delay, t0, t1,
    `jump_ts` and `ts`. The gradient is exact up to the tolerances of both solves. It shows the equations at work and gives
    the backward solve tolerances of its own; [`lagrax.DiscreteAdjoint`][] is exact for what was computed, and faster.

    - `solver`, `stepsize_controller`: of the backward solve; by default those of the forward solve.
    - `max_steps`: how many steps the backward solve may attempt.
    """

    solver: dfx.AbstractSolver | None = None
    stepsize_controller: dfx.AbstractStepSizeController | None = None
    max_steps: int = eqx.field(static=True, default=4096)

    @property
    def reads_output(self):
        return True

    def check(self, problem, setup, saveat):
        refuse = "got {} with ContinuousAdjoint, expected {}: pass adjoint=lagrax.DiscreteAdjoint() instead"
        if problem.lags:
            raise ValueError(refuse.format("a delay that moves or overlaps (or is one of many)", "constant delays"))
        if problem.slopes:
            raise ValueError(refuse.format("a delayed derivative", "delayed states"))
        if setup.memory is not None:
            raise ValueError(refuse.format("bounded memory", "memory = None"))
        if problem.kicks is not None:
            raise ValueError(refuse.format("impulses", "a state that is not kicked"))
        if problem.events is not None:
            raise ValueError(refuse.format("an event", "a fixed t1"))
        if jnp.issubdtype(problem.y0.dtype, jnp.complexfloating):
            raise ValueError(refuse.format("a complex state", "a real one"))
        self.backward_setup(setup)

    def solve(self, problem, setup, ts):
        check_fits(problem, setup, ts, gradient=False)
        variables, constants = eqx.partition(problem, eqx.is_inexact_array)
        trajectory, ys = _solve((variables, ts), constants, setup, self.backward_setup(setup))
        message = (
            "ContinuousAdjoint differentiates the states that SaveAt saves at t0, ts and t1, not those of steps or dense "
            "output: save at ts, or pass adjoint=lagrax.DiscreteAdjoint()."
        )
        # The gradient of another output is an error, not zero.
        past = nondifferentiable_backward(trajectory.past, msg=message)
        return without_tangents(dataclasses.replace(trajectory, past=past)), ys

    def backward_setup(self, setup: Setup) -> Setup:
        """How to solve backwards, given how the forward solve is done."""
        solver = setup.solver if self.solver is None else self.solver
        controller = setup.controller if self.stepsize_controller is None else self.stepsize_controller
        if isinstance(controller, dfx.StepTo):
            raise ValueError(
                "ContinuousAdjoint would solve backwards with StepTo, expected steps that serve both directions: pass "
                "ContinuousAdjoint(stepsize_controller=...)"
            )
        dt0 = None if isinstance(controller, dfx.AbstractAdaptiveStepSizeController) else setup.dt0
        check_steps(solver, controller, dt0)
        return make_setup(solver, controller, dt0, self.max_steps)

    def costate(self, solution: dfx.Solution, ts: Float[Array, " times"], gradients: PyTree[Array]):
        """The function t -> λ(t) = ∂L/∂y(t), for a solution with dense output and a loss with the given gradients with
        respect to y(ts) (leaves with a leading axis of times). Needs `solver` and `stepsize_controller`."""
        if self.solver is None or self.stepsize_controller is None or solution.interpolation is None:
            raise ValueError(
                f"got solver {self.solver}, stepsize_controller {self.stepsize_controller} and a solution "
                f"{'without' if solution.interpolation is None else 'with'} dense output, expected all three for a costate: "
                "pass ContinuousAdjoint(solver, stepsize_controller) and solve with SaveAt(dense=True)"
            )
        dense: Any = solution.interpolation
        dtype = dense.problem.t0.dtype
        flat = jax.vmap(lambda leaf: jax.flatten_util.ravel_pytree(leaf)[0])(gradients)
        setup = make_setup(self.solver, self.stepsize_controller, None, self.max_steps)
        found = solve_costate(Forward(dense), gather_observations(jnp.asarray(ts, dtype), flat), setup)
        return lambda t: _costate_at(found, dense.problem, jnp.asarray(t, dtype))


@compiled
def _costate_at(costate: Costate, problem: Problem, t: Float[Array, ""]) -> PyTree[Array]:
    return problem.unravel(costate(t))


@eqx.filter_custom_vjp
def _solve(inputs: tuple[Problem, Any], constants: Problem, setup: Setup, backward: Setup):
    problem = eqx.combine(inputs[0], constants)
    trajectory = integrate(problem, setup)
    return trajectory, observe(trajectory, inputs[1], problem)


@_solve.def_fwd
def _solve_fwd(perturbed, inputs, constants, setup, backward):
    problem = eqx.combine(inputs[0], constants)
    trajectory = integrate(problem, setup)
    return once_only((trajectory, observe(trajectory, inputs[1], problem))), trajectory


@_solve.def_bwd
def _solve_bwd(trajectory: Trajectory, cotangent: Any, perturbed, inputs, constants, setup, backward):
    trajectory_bar, ys_bar = cotangent
    variables, ts = inputs
    problem = eqx.combine(variables, constants)
    fill = lambda bar, like: jnp.zeros_like(like) if bar is None else bar
    ys_bar = fill(ys_bar, jnp.zeros((ts.size, problem.y0.size), problem.y0.dtype))
    y_end_bar = fill(trajectory_bar.y_end, trajectory.y_end)
    nothing = jnp.zeros(0, problem.t0.dtype)
    past: Any = trajectory.past
    forward = Forward(DenseSolution(past, problem, nothing, nothing.astype(jnp.int32), trajectory.t_end))
    observations = gather_observations(jnp.append(ts, trajectory.t_end), jnp.concatenate([ys_bar, y_end_bar[None]]))
    costate = solve_costate(forward, observations, backward)
    integral, evaluations = _integral(costate, forward, variables, constants, perturbed[0], backward)
    problem_bar = eqx.combine(integral, jax.tree.map(jnp.zeros_like, variables))
    problem_bar = _add_ends(problem_bar, costate, forward, y_end_bar, fill(trajectory_bar.t_end, trajectory.t_end))
    # A time of observation moves along the solution.
    ts_bar = jax.vmap(lambda t, bar: bar @ forward.slope(just_before(t)))(ts, ys_bar)
    lost = failed(trajectory.result)
    bars = spoil((problem_bar, ts_bar), lost, is_asked(cotangent))
    tell(evaluations)
    message = "The backward solve of ContinuousAdjoint failed: raise its max_steps, or loosen its tolerances."
    # Where the forward solve failed, the backward one has nothing to say.
    return eqx.error_if(once_only(bars), failed(costate.trajectory.result) & ~lost, message)


def _integral(costate: Costate, forward: Forward, variables, constants, perturbed, setup: Setup):
    """(The derivative of ∫ λᵀ f dt with respect to the perturbed variables, the evaluations of the backward pass)."""
    moving, fixed = eqx.partition(variables, perturbed)
    fixed = eqx.combine(fixed, constants)
    dtype = forward.problem.y0.dtype
    # Gauss's rule is exact to twice as many orders as it has points, more than λ and y have.
    points = setup.method.order // 2 + 2
    theta, weights = np.polynomial.legendre.leggauss(points)
    mesh, pieces = _mesh(forward, costate)

    def weighed(moving, times, costates, weights):
        along = Forward(dataclasses.replace(forward.dense, problem=eqx.combine(moving, fixed)))
        return jnp.sum(weights[:, None] * costates * jax.vmap(along.slope)(times))

    def add_piece(carry):
        i, total = carry
        # Under vmap, where others have more pieces, there is nothing left to add here: at a time that exists, with weight 0.
        start = jnp.where(i < pieces, mesh[i], forward.dense.t_end)
        length = jnp.where(i < pieces, mesh[i + 1] - mesh[i], 0)
        times = start + length * jnp.asarray((theta + 1) / 2, start.dtype)
        scaled = length.astype(dtype) * jnp.asarray(weights / 2, dtype)
        gradient = jax.grad(weighed)(moving, times, jax.vmap(costate)(times), scaled)
        return i + 1, jax.tree.map(jnp.add, total, gradient)

    last = unvmap_max(pieces)
    start = (jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, moving))
    _, total = lax.while_loop(lambda carry: carry[0] < last, add_piece, start)
    transposes = 1 + forward.problem.delays.size
    return total, transposes * costate.trajectory.evaluations + points * pieces


def _mesh(forward: Forward, costate: Costate) -> tuple[Float[Array, " points"], Int[Array, ""]]:
    """(The mesh points of both solves in one list, the number of pieces between them): in a piece all is smooth."""
    ahead, back = forward.dense.past, costate.trajectory.past
    assert back is not None, "the backward solve keeps its steps"
    mirrored = jnp.where(jnp.isfinite(back.starts), -back.starts, jnp.inf)
    return jnp.sort(jnp.concatenate([ahead.starts, mirrored])), ahead.count + back.count - 1


def _add_ends(problem_bar: Problem, costate: Costate, forward: Forward, y_end_bar, t_end_bar) -> Problem:
    """Adds what the integral does not see: y0, and the times at which something starts, ends or jumps."""
    problem, t_end = forward.problem, forward.dense.t_end
    delays_bar, roots_bar = _jumps(costate, forward)
    start = -costate(problem.t0, right=True) @ forward.slope(just_after(problem.t0))
    end = y_end_bar @ forward.slope(just_before(t_end))
    return eqx.tree_at(
        lambda p: (p.y0, p.delays, p.jump_ts, p.t0, p.t1),
        problem_bar,
        (
            problem_bar.y0 + costate(problem.t0),
            problem_bar.delays + delays_bar,
            problem_bar.jump_ts + roots_bar[:-1],
            problem_bar.t0 + roots_bar[-1] + start,
            problem_bar.t1 + end + t_end_bar,
        ),
    )


def _jumps(costate: Costate, forward: Forward) -> tuple[Float[Array, " n"], Float[Array, " roots"]]:
    """What moving the jumps of f, and of what it sees of the past, contributes to (the delays, the roots)."""
    problem = forward.problem
    roots = root_times(problem)

    def echo(j: int, mark: Float[Array, ""]) -> Float[Array, ""]:
        # Only z_j jumps: equal delays have separate gradients.
        time, y, after = forward.seen(mark)
        before = after.at[j].set(forward.dense.state(forward.shifted(just_before(mark), -problem.delays[j])))
        return costate(mark, right=True) @ (problem.field(time, y, before) - problem.field(time, y, after))

    def own(root: Float[Array, ""]) -> Float[Array, ""]:
        jump = costate(root, right=True) @ (forward.slope(just_before(root)) - forward.slope(root))
        return jnp.where(root > problem.t0, jump, 0)

    terms = [jax.vmap(ft.partial(echo, j))(forward.marks(-delay)) for j, delay in enumerate(problem.delays)]
    echoes = jnp.stack(terms)
    return jnp.sum(echoes, axis=1), jnp.sum(echoes, axis=0) + jax.vmap(own)(roots)
