"""Where on a step a lag leaves the piece of the past it reads: a breakpoint that depends on the solution.

The stages of a step that overshoots read the piece's continuation, so the step is smooth, and the breakpoint is the first
root of `α(t, p(t)) = ξ` on its polynomial p, ξ an end of the piece. The step is taken again to end just behind that root,
and is left exactly there: the next step starts at the root, and nobody reads the rest of the polynomial.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from .._past import evaluate, split_rows
from .._problem import Problem
from .._xla._buffer import read
from .._xla._compat import unvmap_any
from ._lookup import View, flags, frozen

AHEAD = 0.01
"""A root this little behind the end of a step, in its lengths, is taken as its end."""

BEYOND = 1e-4
"""How far behind the root a step that is taken again ends, in its lengths: the stages see little of the continuation."""

NEAR = 1e-3
"""A step may be cut off by this much: it hardly saw what is behind the root."""

TINY = 1e-6
"""A step may be cut off that early: what its later stages saw changes it by the square of this."""

SAMPLES = np.append(np.linspace(0, 1, 9), 1 + AHEAD)

BISECTIONS, NEWTON_STEPS = 24, 3


class Crossing(eqx.Module):
    """The first end of a piece that is passed on a step, at `theta` of its length: by which lag, and in which direction."""

    found: Bool[Array, ""]
    theta: Float[Array, ""]
    lag: Int[Array, ""]
    up: Bool[Array, ""]
    astray: Int[Array, " n"]
    """-1 or 1 for lags that were outside their pieces, below or above, from the start of the step to its end."""
    looked_up: Float[Array, "samples n"]
    """The times looked at along the step."""
    times: Float[Array, " samples"]

    @property
    def lands(self) -> Bool[Array, ""]:
        """Whether the step may be cut off there as it is."""
        return self.found & ((self.theta >= 1 - NEAR) | (self.theta <= TINY))


def first_crossing(problem: Problem, view: View, row: Inexact[Array, " row"], slack: Float[Array, ""]) -> Crossing:
    """The first crossing on a step, by more than `slack`."""
    row, problem = frozen((row, problem))
    (t, t_end), n = split_rows(row)[0], len(problem.lags)
    tracked, _ = flags(problem)

    def looked_up(theta):
        time = t + theta * (t_end - t)
        return problem.looked_up(time, evaluate(*split_rows(row), time, problem.y0.dtype, problem.y0.size))

    def beyond(times: Float[Array, " n"]) -> Float[Array, " pairs"]:
        """How far above and below their pieces the lags look."""
        return jnp.concatenate([times - view.upper, view.lower - times])

    thetas = jnp.asarray(SAMPLES, t.dtype)
    times = jax.vmap(looked_up)(thetas)
    outside = jax.vmap(beyond)(times) > slack
    armed = ~outside[0] & np.concatenate([tracked, tracked])
    crosses = jnp.any(outside & armed[None], axis=1)
    number = jnp.argmax(crosses).astype(jnp.int32)
    bracket = (read(thetas, jnp.maximum(number - 1, 0)), read(thetas, number))
    found = jnp.any(crosses)

    locate = lambda: _root(lambda theta: beyond(looked_up(theta)), armed, bracket, slack)
    theta, pair = lax.cond(unvmap_any(found), locate, lambda: (jnp.ones_like(t), jnp.zeros((), jnp.int32)))
    stayed = (outside[0] & outside[-2]).astype(jnp.int32)
    astray = jnp.where(tracked, stayed[:n] - stayed[n:], 0)
    return Crossing(found, theta, pair % n, pair < n, astray, times, t + thetas * (t_end - t))


def _root(beyond, armed, bracket, slack):
    """(Where the first of the pairs that are `armed` passes zero, which one it is): bisection, then Newton's method."""
    hit = lambda theta: (beyond(theta) > slack) & armed

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        before = ~jnp.any(hit(middle))
        return jnp.where(before, middle, low), jnp.where(before, high, middle)

    _, theta = lax.fori_loop(0, BISECTIONS, halve, bracket)
    pair = jnp.argmax(hit(theta)).astype(jnp.int32)

    def improve(_, theta):
        at = lambda theta: read(beyond(theta), pair)
        value, slope = jax.jvp(at, (theta,), (jnp.ones_like(theta),))
        better = jnp.maximum(theta - value / jnp.where(slope == 0, 1, slope), 0)
        # Where α only touches ξ, the method goes astray.
        good = (slope != 0) & (better <= bracket[1]) & (jnp.abs(at(better)) < jnp.abs(value))
        return jnp.where(good, better, theta)

    return lax.fori_loop(0, NEWTON_STEPS, improve, theta), pair


def landing_time(problem: Problem, row: Inexact[Array, " row"], theta, lag: Int[Array, ""], source_time) -> Float[Array, ""]:
    """The time of the crossing, moving with the step, the lag and the source that it looks at (forward mode)."""
    (t, t_end), _ = split_rows(row)
    time = lax.stop_gradient(t + theta * (t_end - t))
    miss, slope = jax.jvp(lambda time: miss_at(problem, row, time, lag, source_time), (time,), (jnp.ones_like(time),))
    slope = lax.stop_gradient(slope)
    return time - jnp.where(slope == 0, 0, (miss - lax.stop_gradient(miss)) / jnp.where(slope == 0, 1, slope))


def miss_at(problem: Problem, row: Inexact[Array, " row"], time, lag: Int[Array, ""], source_time) -> Float[Array, ""]:
    """`α(t, p(t)) - ξ`, zero at the breakpoint."""
    state = evaluate(*split_rows(row), time, problem.y0.dtype, problem.y0.size)
    return read(problem.looked_up(time, state), lag) - source_time
