"""The paper's Algorithm 1: the delay equation as ordinary ones, one delay length at a time, forwards and backwards.

With h_k(θ) = y(t0 + kτ + θ) for θ in [0, τ], the pieces h_0, …, h_{n-1} solve one ordinary equation together, since what a
piece looks back at is the piece before it (the initial value φ for h_0). Forwards, the state at (k+1)τ comes from the first
k + 1 pieces started at y(0), …, y(kτ): an equation that grows with k. Only these states are kept. Backwards, for
i = n-1, …, 0, all pieces run from τ down to 0 again, with the costates λ_{n-1}, …, λ_i and the integral ∂L/∂w of λ_iᵀ f_w.

A loss may observe the solution anywhere: an observation at t_i belongs to the piece k it falls into, at θ_i, and λ_k jumps
there by its gradient g_i. As in `_costate.py` the equations are solved for the continuous part ν_k = λ_k - J_k, with a step
ending at each θ_i. The last piece may be cut short by t1; it stands still from there on.
"""

import dataclasses
import math
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from .._check import check_steps, concrete
from .._lag import are_planned, is_lag
from .._method import method_of
from .._problem import Problem
from .._results import failed
from .._setup import Setup
from .._trajectory import Trajectory, spoil
from ._base import AbstractAdjoint, is_asked, once_only, without_tangents
from ._count import tell
from ._pieces import ROUNDING, Pieces, solve_ordinary, start_count


class PiecewiseAdjoint(AbstractAdjoint):
    """Reverse mode as in the paper's Algorithm 1: between the passes only y(t0 + kτ), k = 0, …, n, is kept.

    For one constant delay and a constant initial function. Both passes are chains of `diffrax.diffeqsolve`, over equations
    whose dimension grows with (t1 - t0)/τ: meant for intervals of few delay lengths. Backwards the solution is recomputed,
    which loses accuracy where the equation, run backwards, amplifies errors.

    Differentiates the states saved at t0, `ts` and t1 with respect to `args`, the history, `y0` and the delay. Asking
    for the gradient of the times is an error.

    - `solver`, `stepsize_controller`: of the backward solves; by default those of the forward solve.
    - `num_intervals`: n = ⌈(t1 - t0)/τ⌉, needed where the delay or the times are traced, as under `jax.jit` or `jax.grad`.
    """

    solver: dfx.AbstractSolver | None = None
    stepsize_controller: dfx.AbstractStepSizeController | None = None
    num_intervals: int | None = eqx.field(static=True, default=None)

    def check(self, problem, setup, saveat):
        refuse = "got {} with PiecewiseAdjoint, expected {}: pass adjoint=lagrax.DiscreteAdjoint() instead"
        for wrong, given, expected in (
            (setup.memory is not None, "bounded memory", "memory = None"),
            (bool(problem.lags), "a delay that moves or overlaps (or is one of many)", "a constant one"),
            (bool(problem.slopes), "a delayed derivative", "a delayed state"),
            (problem.delays.size > 1, f"{problem.delays.size} delays", "one"),
            (callable(problem.history), "a history that is a function", "a constant one"),
            (problem.kicks is not None, "impulses", "a state that is not kicked"),
            (problem.jump_ts.size > 0, "jump_ts", "a smooth vector field"),
            (problem.events is not None, "an event", "a fixed t1"),
            (saveat.dense, "SaveAt(dense=True)", "states at t0, ts and t1"),
            (any(sub.steps for sub in jax.tree.leaves(saveat.subs, is_leaf=_is_sub)), "SaveAt(steps=...)", "ts"),
            (jnp.issubdtype(problem.y0.dtype, jnp.complexfloating), "a complex state", "a real one"),
            (isinstance(setup.controller, dfx.StepTo), "StepTo", "steps that serve every piece"),
        ):
            if wrong:
                raise ValueError(refuse.format(given, expected))
        self.backward_setup(setup)

    def prepared(self, t0, t1, lags):
        lags = jax.tree.leaves(lags, is_leaf=is_lag)
        if self.num_intervals is not None or len(lags) != 1 or not are_planned(lags):
            return self
        values = [concrete(x) for x in (t0, t1, lags[0].inner.delay)]
        if any(value is None for value in values):
            raise ValueError(
                "the delay, t0 or t1 is traced, expected a number of pieces known in advance: pass "
                "PiecewiseAdjoint(num_intervals=ceil((t1 - t0) / delay))"
            )
        start, end, delay = (float(value) for value in values if value is not None)
        return dataclasses.replace(self, num_intervals=max(1, math.ceil((end - start) / delay * (1 - ROUNDING))))

    def solve(self, problem, setup, ts):
        variables, constants = eqx.partition(problem, eqx.is_inexact_array)
        assert self.num_intervals is not None, "ddesolve fills it in"
        backward = self.backward_setup(setup)
        trajectory, ys = _solve((variables, ts), constants, setup, backward, self.num_intervals)
        return without_tangents(trajectory), ys

    def backward_setup(self, setup: Setup) -> tuple[dfx.AbstractSolver, dfx.AbstractStepSizeController]:
        solver = setup.solver if self.solver is None else self.solver
        controller = setup.controller if self.stepsize_controller is None else self.stepsize_controller
        check_steps(solver, controller, setup.dt0)
        return solver, controller


def _is_sub(x: Any) -> bool:
    return isinstance(x, dfx.SubSaveAt)


@eqx.filter_custom_vjp
def _solve(inputs: tuple[Problem, Any], constants: Problem, setup: Setup, backward: tuple, n: int):
    return _run_forward(Pieces(eqx.combine(inputs[0], constants), n), inputs[1], setup)[0]


@_solve.def_fwd
def _solve_fwd(perturbed, inputs, constants, setup, backward, n):
    times = (perturbed[0].t0, perturbed[0].t1, perturbed[1])
    if any(jax.tree.leaves(times)):
        raise ValueError(
            "got a gradient with respect to t0, t1 or ts with PiecewiseAdjoint, expected fixed times: pass "
            "adjoint=lagrax.DiscreteAdjoint()"
        )
    (trajectory, ys), kept = _run_forward(Pieces(eqx.combine(inputs[0], constants), n), inputs[1], setup)
    return once_only((trajectory, ys)), (kept, trajectory.result)


@_solve.def_bwd
def _solve_bwd(residuals: tuple, cotangent: Any, perturbed, inputs, constants, setup, backward, n):
    kept, result = residuals
    trajectory_bar, ys_bar = cotangent
    variables, ts = inputs
    problem = eqx.combine(variables, constants)
    fill = lambda bar, like: jnp.zeros_like(like) if bar is None else bar
    ys_bar = fill(ys_bar, jnp.zeros((ts.size, problem.y0.size), problem.y0.dtype))
    gradients = jnp.concatenate([ys_bar, fill(trajectory_bar.y_end, problem.y0)[None]])
    observations = (*Pieces(problem, n).fold(jnp.append(ts, problem.t1)), gradients)
    moving, fixed = eqx.partition(variables, perturbed[0])
    # The delay has a term of its own.
    moving = eqx.tree_at(lambda p: p.delays, moving, None, is_leaf=lambda x: x is None)
    fixed = eqx.combine(eqx.tree_at(lambda p: p.delays, fixed, problem.delays, is_leaf=lambda x: x is None), constants)
    total, delay_bar, costate, count = _run_backward(kept, observations, moving, fixed, setup, backward, n)
    problem_bar = eqx.combine(total, jax.tree.map(jnp.zeros_like, variables))
    problem_bar = eqx.tree_at(
        lambda p: (p.y0, p.delays), problem_bar, (problem_bar.y0 + costate, problem_bar.delays + delay_bar)
    )
    problem_bar = spoil(problem_bar, failed(result), is_asked(cotangent))
    tell(count.evaluations)
    message = "A backward solve of PiecewiseAdjoint failed: raise max_steps, or loosen its tolerances."
    # Where the forward solve failed, the backward ones have nothing to say.
    return eqx.error_if(once_only((problem_bar, jnp.zeros_like(ts))), failed(count.result) & ~failed(result), message)


def _run_forward(pieces: Pieces, ts: Float[Array, " times"], setup: Setup):
    """((The trajectory's end and counts, the states at ts), the states y(t0 + kτ), k = 0, …, n)."""
    problem, zero = pieces.problem, jnp.zeros_like(pieces.delay)
    number, folded = pieces.fold(ts)
    observed = jnp.broadcast_to(problem.y0, (ts.size, problem.y0.size))
    states, count = [problem.y0], start_count(pieces, setup)
    reached = (problem.t0, problem.y0)
    newest = lambda theta, h, args: h[-1]
    for k in range(pieces.n):
        length = pieces.length(k)
        # In order, as the ts are; those of other pieces are read at an end of this one, and dropped.
        inside = jnp.where(number < k, zero, jnp.where(number > k, length, folded))
        subs = [dfx.SubSaveAt(t1=True, fn=newest), *([dfx.SubSaveAt(ts=inside, fn=newest)] if ts.size else [])]
        solution = solve_ordinary(
            lambda theta, h, pieces: pieces.slopes(theta, h),
            *(setup.solver, setup.controller, setup),
            (zero, length),
            jnp.stack(states),
            pieces,
            dfx.SaveAt(subs=subs),
        )
        ys: Any = solution.ys
        states.append(ys[0][0])
        if ts.size:
            observed = jnp.where(((number == k) & (ts > problem.t0))[:, None], ys[1], observed)
        count = count.add(solution, setup.method, k + 1, selected=setup.adaptive)
        end = problem.t1 if k == pieces.n - 1 else problem.t0 + (k + 1) * pieces.delay
        lost = failed(count.result)
        reached = (jnp.where(lost, reached[0], end), jnp.where(lost, reached[1], states[-1]))
    trajectory = Trajectory(
        past=None,
        record=None,
        sources=None,
        t_end=reached[0],
        y_end=reached[1],
        count=count.accepted,
        attempts=count.steps,
        evaluations=count.evaluations,
        result=count.result,
        event_mask=None,
    )
    return (trajectory, observed), jnp.stack(states)


def _run_backward(kept, observations, moving, fixed, setup: Setup, backward: tuple, n: int):
    """(∂L/∂w, dL/dτ, ∂L/∂y(t0), counts): for i = n-1, …, 0 one equation from θ = τ down to 0."""
    solver, controller = backward
    number, folded, gradients = observations
    pieces = Pieces(eqx.combine(moving, fixed), n)
    stops = dfx.ClipStepSizeController(controller, jump_ts=jnp.sort(jnp.append(folded, pieces.rest)))
    method, count = method_of(solver, output=False), start_count(pieces, setup)
    top, zero = pieces.length(0), jnp.zeros_like(pieces.delay)
    costates = [jnp.zeros_like(kept[0])]  # λ(nτ⁺), λ((n-1)τ), …
    # The delay's and all others, as a list: the state of an equation has no empty nodes, as a problem does.
    leaves, structure = jax.tree.flatten(moving)
    totals = [zero, *map(jnp.zeros_like, leaves)]
    for i in reversed(range(n)):
        field = lambda theta, state, args, i=i: _augmented(theta, state, args, i, n)
        start = (kept[1:], jnp.stack(costates[::-1]), totals)
        solution = solve_ordinary(field, solver, stops, setup, (top, zero), start, (moving, fixed, observations))
        _, nu, totals = jax.tree.map(lambda leaf: leaf[0], solution.ys)
        jumps = jnp.sum(jnp.where((number == i)[:, None], gradients, jnp.zeros_like(gradients)), axis=0)
        costates.append(nu[0] + jumps)
        count = count.add(solution, method, n, stops=len(folded) + 1, selected=setup.adaptive)
    delay_bar, *total = totals
    if n > 1:
        delay_bar = delay_bar + _jump(pieces, kept[1], costates[-2])
    return jax.tree.unflatten(structure, total), delay_bar, costates[-1], count


def _augmented(theta: Float[Array, ""], state, args, i: int, n: int):
    """The right-hand side of Algorithm 1: (h_0, …, h_{n-1}; ν_i, …, ν_{n-1}; dL/dτ, ∂L/∂w)."""
    h, nu, _ = state
    moving, fixed, (number, folded, gradients) = args
    pieces = Pieces(eqx.combine(moving, fixed), n)
    seen = (jnp.arange(i, n, dtype=jnp.int32)[:, None] == number[None]) & (folded >= theta)[None]
    costates = nu + seen.astype(nu.dtype) @ gradients
    slopes, times, past = pieces.slopes(theta, h), pieces.times(theta, n), pieces.past(h)

    def transposed(t, y, z, costate):
        return jax.vjp(lambda y, z: pieces.field(t, y, z), y, z)[1](costate)

    towards_y, towards_z = jax.vmap(transposed)(times[i:], h[i:], past[i:], costates)
    from_next = jnp.concatenate([towards_z[1:], jnp.zeros_like(h[:1])])

    def weighed(moving):
        # The initial function is what piece 0 looks back at; later pieces look at states, which are held fixed.
        pieces = Pieces(eqx.combine(moving, fixed), n)
        z = pieces.past(h)[0] if i == 0 else past[i]
        return -costates[0] @ pieces.field(times[i], h[i], z)

    slope_seen = slopes[i - 1] if i > 0 else jnp.zeros_like(h[0])
    delay = (towards_z[0] @ slope_seen).astype(theta.dtype)
    return slopes, -towards_y - from_next, [delay, *jax.tree.leaves(jax.grad(weighed)(moving))]


def _jump(pieces: Pieces, y: Inexact[Array, " d"], costate: Inexact[Array, " d"]) -> Float[Array, ""]:
    """The part of dL/dτ that comes from y0 ≠ φ: at t0 + τ, where the state is y, the vector field jumps."""
    problem, constant = pieces.problem, pieces.past(y[None])[0]
    time = problem.t0 + pieces.delay
    return costate @ (pieces.field(time, y, constant) - pieces.field(time, y, problem.y0))
