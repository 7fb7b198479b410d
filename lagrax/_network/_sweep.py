"""One step of a network, repeated where elements look into the step itself until what they see agrees with it.

As in `_staged/_sweep.py`; but which elements do, and where, is known before the step is taken. An element without delay sees
the state of the stage, and needs no repetition.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Inexact

from .._control import tolerance
from .._method import combine
from .._method._step import take_step, with_output_error
from .._problem import Problem
from .._setup import Setup
from .._xla._compat import nondifferentiable
from ._lookup import Lookup
from ._memory import make_row, polynomial
from ._network import read_components

SWEEPS, FIXED_SWEEPS = 10, 50
"""How often a step is repeated at most, with adaptive steps (which can be made shorter) and with fixed ones."""


def take_sweeps(carry: Any, slope, t_end, lookup: Lookup, seen: Inexact[Array, "nodes e"], problem: Problem, setup: Setup):
    """(The step to t_end, its row, how often it was taken, whether it agrees with what its elements saw of it)."""

    def once(seen):
        step = take_step(setup.solver, setup.method, problem, carry.t, t_end, carry.y, slope, seen)
        if setup.adaptive:
            step = with_output_error(step, setup.method, problem, carry.t, t_end, carry.y, seen)
        return step, make_row(setup.method, carry.y, step.increments)

    if not problem.network.overlaps:
        return *once(seen), jnp.ones((), jnp.int32), jnp.array(True)
    within = _looks_within(carry, lookup, problem)
    most = SWEEPS if setup.adaptive else FIXED_SWEEPS
    scale = lax.stop_gradient(0.01 * tolerance(carry.y, setup))

    def again(state):
        _, own, change, count, _ = state
        step, row = once(see_within(seen, own, within, lookup, problem))
        new_change = jnp.max(jnp.sum(jnp.abs(row - own), axis=-1) / scale)
        settled = ~jnp.any(within) | (new_change <= 1)
        # A change that grows, or is not a number, will not settle.
        hopeless = ~settled & ~(new_change <= 2 * change)
        return step, row, jnp.where(hopeless, -jnp.inf, new_change), count + 1, settled

    guess = lax.stop_gradient(continued(carry, slope, t_end))
    nothing = eqx.filter_eval_shape(lambda: once(seen)[0])
    first = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), nothing)
    start = (first, guess, jnp.full((), jnp.inf, scale.dtype), jnp.zeros((), jnp.int32), jnp.array(False))
    unsettled = lambda state: ~state[4] & (state[3] < most) & (state[2] >= 0)
    step, row, _, count, settled = lax.while_loop(unsettled, again, start)
    if step.error is not None:
        # Not settled is an error without bound: the controller asks for a shorter step.
        step = eqx.tree_at(lambda s: s.error, step, jnp.where(settled, step.error, jnp.inf))
    message = (
        "forward-mode differentiation (jvp, hessian) of a network whose delays overlap is not possible: use jax.grad "
        "with adjoint=lagrax.DiscreteAdjoint(), or delays that do not overlap."
    )
    return *nondifferentiable((step, row), msg=message), count, settled


def _looks_within(carry: Any, lookup: Lookup, problem: Problem) -> Bool[Array, "nodes e"]:
    """Which elements look into the step itself, at which nodes."""
    delays = problem.network.delays(problem.lags, problem.y0.size, carry.t.dtype)
    return (lookup.links == carry.count + carry.memory.first) & (delays > 0)


def see_within(seen, own: Inexact[Array, "d powers"], within: Bool[Array, "looked e"], lookup: Lookup, problem: Problem):
    """What is seen if the step itself is `own`. (`within` may lack the first node, where nothing is looked up.)"""
    of_step = polynomial(
        jnp.broadcast_to(read_components(own, problem.network.senders), (*within.shape, own.shape[1])), lookup.theta
    )
    looked = seen[seen.shape[0] - within.shape[0] :]
    return jnp.concatenate([seen[: seen.shape[0] - within.shape[0]], jnp.where(within, of_step, looked)])


def continued(carry: Any, slope: Inexact[Array, " d"], t_end) -> Inexact[Array, "d powers"]:
    """A guess for the row of the next step: that of the last one continued, or at first a line."""
    powers = list(jnp.unstack(carry.pending, axis=-1))
    length = carry.t - carry.begin
    usable = (carry.count > 0) & (length > 0)
    ratio = ((t_end - carry.t) / jnp.where(length > 0, length, 1)).astype(carry.y.dtype)
    # p(1 + r θ) = Σ_k θ^k r^k Σ_j C(j, k) p_j
    numbers = range(len(powers))
    shifted = [combine([math.comb(j, k) for j in numbers], powers) * ratio**k for k in numbers]
    line = [carry.y, (t_end - carry.t).astype(carry.y.dtype) * slope, *[jnp.zeros_like(carry.y)] * (len(powers) - 2)]
    chosen = [jnp.where(usable, a, b) for a, b in zip(shifted, line[: len(powers)], strict=True)]
    return jnp.stack([carry.y, *chosen[1:]], axis=-1)
