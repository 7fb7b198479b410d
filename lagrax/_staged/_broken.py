"""Lags that cannot be right: they look into the future, are shorter than was promised, or are not numbers."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._control import tolerance
from .._problem import Problem
from .._results import RESULTS
from .._setup import Setup
from .._xla._compat import unvmap_any
from .._xla._fold import any_of, fold
from .._xla._neighbours import just_after
from ._crossing import Crossing, promise
from ._lookup import frozen, slack_of
from ._sweep import Start


def with_broken_lags(result: RESULTS, keep, crossing: Crossing, start: Start, t, y, problem: Problem, setup: Setup):
    """The result, unless a lag looks into the future, is shorter than promised, or NaN, on a step to (t, y) that is kept,
    or at the start of one that is not, which may be why."""
    start, t, y, problem = frozen((start, t, y, problem))

    def diagnosed():
        slack, times = slack_of(problem), crossing.times
        seen = jnp.where(keep, times <= t + slack, times == times[0])[:, None]
        promised = jnp.stack([promise(lag, problem) for lag in problem.lags])
        time, state = jnp.where(keep, t, just_after(start.t)), jnp.where(keep, y, start.y)
        # (The polynomial of a step that is not kept may be NaN even there.)
        known = jnp.where(keep, times[:, None] - crossing.looked_up, time - problem.looked_up(time, state))
        shortest = fold(jnp.minimum, jnp.where(seen, known, jnp.inf))
        uncertain = slack + _uncertainty(time, state, start, problem, setup)
        broken: Any = RESULTS.where(any_of(shortest < promised - uncertain), RESULTS.bad_delay, RESULTS.successful)
        broken = RESULTS.where(any_of(shortest < -uncertain), RESULTS.advanced_argument, broken)
        # (The shortest of steps is not kept: is it the field, or a lag?)
        furthest = jnp.maximum(times[-2], just_after(start.t))
        stuck = ~keep & (result == RESULTS.field_nonfinite) & any_of(~jnp.isfinite(problem.looked_up(furthest, start.y)))
        broken = RESULTS.where(stuck | any_of(~jnp.isfinite(known) & seen), RESULTS.lag_nonfinite, broken)
        counts = (broken != RESULTS.successful) & (~keep | (result == RESULTS.successful))
        return RESULTS.where(counts, broken, result)

    return lax.cond(unvmap_any(~crossing.sound), diagnosed, lambda: result)


def _uncertainty(t, y, start: Start, problem: Problem, setup: Setup) -> Float[Array, " n"]:
    """A lag is as uncertain as the state that it depends on."""
    error = 10 * tolerance(y, setup) if setup.adaptive else 0.01 * jnp.abs(y - start.y)
    _, transpose = jax.vjp(lambda y: problem.looked_up(t, y), y)
    weights = jax.vmap(lambda which: transpose(which)[0])(jnp.eye(len(problem.lags), dtype=t.dtype))
    return jnp.abs(weights) @ error
