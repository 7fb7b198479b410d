"""The costate λ(t) = ∂L/∂y(t): Theorem 1's delay equation, solved backwards in time.

For y' = f(t, y, z_1, …, z_n), z_j = y(t - τ_j), and a loss that depends on y(t_i) with gradients g_i,

    λ'(t) = -f_y(t)ᵀ λ(t) - Σ_j f_{z_j}(t + τ_j)ᵀ λ(t + τ_j),     λ(t) = 0 for t > T,     λ(t_i⁻) = λ(t_i⁺) + g_i.

With s = -t this is a delay equation in s, solved by the same loop as all others. What it looks back at jumps at s_i = -t_i,
so it is solved for the continuous part ν = λ - J, where J(s) = Σ_i g_i 1[s ≥ s_i] is known; the jumps and their echoes
are breakpoints. So are the times at which the coefficients f_y and f_z are not smooth, because the forward solution (or
f itself) has a kink or jump there.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact

from .._integrate import integrate
from .._output._dense import DenseSolution
from .._planned._breakpoints import root_times
from .._problem import Problem
from .._setup import Setup
from .._trajectory import Trajectory
from .._xla._compiled import compiled
from .._xla._neighbours import previous


class Forward(eqx.Module):
    """The forward solution as the backward pass reads it.

    On which side of a jump a lookup falls is decided on one scale, that of t: whether `t + offset` lies before or after a
    root is read off from t and `root - offset`, where steps end to the last bit, and not from the rounded sum.
    """

    dense: DenseSolution

    @property
    def problem(self) -> Problem:
        return self.dense.problem

    def marks(self, offset: Any) -> Float[Array, " roots"]:
        """The times t at which `t + offset` passes a root: a declared jump, or (the last) t0."""
        return root_times(self.problem) - offset

    def shifted(self, t: Float[Array, ""], offset: Any) -> Float[Array, ""]:
        """`t + offset`, on the side of every root on which t is of its mark, and not after t1."""
        roots, time = lax.stop_gradient(root_times(self.problem)), t + offset
        after = t >= self.marks(offset)
        lower = jnp.max(jnp.where(after, -previous(-roots), -jnp.inf))
        upper = jnp.min(jnp.where(after, jnp.inf, previous(roots)))
        kept = jnp.minimum(jnp.clip(time, lower, upper), self.dense.t_end)
        return time + lax.stop_gradient(kept - time)

    def seen(self, t: Float[Array, ""], offset: Any = 0.0):
        """What the vector field is given at time `t + offset`: (the time, the state, the delayed states)."""
        offset = jnp.asarray(offset, t.dtype)
        time = self.shifted(t, offset)
        past = [self.dense.state(self.shifted(t, offset - delay)) for delay in self.problem.delays]
        return time, self.dense.state(time), jnp.stack(past)

    def slope(self, t: Float[Array, ""]) -> Inexact[Array, " d"]:
        """The vector field along the solution."""
        return self.problem.field(*self.seen(t))

    def transposed(self, t: Float[Array, ""], offset: Any, costate: Inexact[Array, " d"]):
        """(f_yᵀ λ, the f_{z_j}ᵀ λ) at time `t + offset`."""
        time, y, past = self.seen(t, offset)
        _, transpose = jax.vjp(lambda y, past: self.problem.field(time, y, past), y, past)
        return transpose(costate)

    def all_marks(self) -> Float[Array, " marks"]:
        """Where the coefficients of the backward equation may not be smooth, in forward time."""
        delays = self.problem.delays
        ahead = jnp.append(delays, 0)
        offsets = jnp.concatenate([ahead, (ahead[:, None] - delays[None]).reshape(-1)])
        return jax.vmap(self.marks)(offsets).reshape(-1)


class Observations(eqx.Module):
    """The gradients g_i of the loss with respect to y(t_i) in the order of s_i = -t_i, as running sums from zero."""

    s: Float[Array, " times"]
    sums: Inexact[Array, "times_and_one d"]

    def jumps(self, s: Float[Array, ""], delay: Any = 0.0) -> Inexact[Array, " d"]:
        """J(s - delay), decided at s_i + delay, where steps end."""
        echoes = self.s + jnp.asarray(delay, self.s.dtype)
        return self.sums[jnp.sum(echoes <= s, dtype=jnp.int32)]


def gather_observations(ts: Float[Array, " times"], gradients: Inexact[Array, "times d"]) -> Observations:
    order = jnp.argsort(-ts)
    sums = jnp.cumsum(gradients[order], axis=0)
    return Observations(-ts[order], jnp.concatenate([jnp.zeros_like(gradients[:1]), sums]))


class Costate(eqx.Module):
    """λ as a function of time."""

    trajectory: Trajectory
    observations: Observations

    def __call__(self, t: Float[Array, ""], right: bool = False) -> Inexact[Array, " d"]:
        """λ(t⁻), which the observations at t itself are part of; with `right`, λ(t⁺)."""
        s = -t
        return self.continuous(s) + self.observations.jumps(previous(s) if right else s)

    def continuous(self, s: Float[Array, ""]) -> Inexact[Array, " d"]:
        """ν(s), zero before the first step."""
        past: Any = self.trajectory.past
        end = self.trajectory.y_end
        nu = jnp.where(s >= self.trajectory.t_end, end, past.state(s, left=True, like=end))
        return jnp.where(s <= past.starts[0], jnp.zeros_like(nu), nu)


@compiled
def solve_costate(forward: Forward, observations: Observations, setup: Setup) -> Costate:
    """Solves the backward equation from t1 down to t0."""
    problem = forward.problem
    zeros = jnp.zeros_like(problem.y0)

    def field(s, nu, delayed, context):
        forward, observations = context
        slope, _ = forward.transposed(-s, 0.0, nu + observations.jumps(s))
        for j, looked_up in enumerate(delayed):
            delay = forward.problem.delays[j]
            _, echoes = forward.transposed(-s, delay, looked_up + observations.jumps(s, delay))
            slope = slope + echoes[j]
        return slope

    backward = Problem(
        vector_field=field,
        args=(forward, observations),
        delays=problem.delays,
        history=zeros,
        y0=zeros,
        t0=-forward.dense.t_end,
        t1=-problem.t0,
        jump_ts=jnp.sort(jnp.concatenate([observations.s, -forward.all_marks()])),
        events=None,
        history_end=jnp.full_like(problem.t0, jnp.inf),
        unravel=lambda y: y,
        delay_structure=jax.tree.structure([0.0] * problem.delays.size),
        may_jump=True,
        impulsive=True,
    )
    return Costate(integrate(backward, setup), observations)
