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
from .._xla._neighbours import inside
from ._lookup import View, flags, frozen

AHEAD = 0.01
"""A root this little behind the end of a step, in its lengths, is taken as its end."""

BEYOND = 1e-4
"""How far behind the root a step that is taken again ends, in its lengths: the stages see little of the continuation."""

NEAR = 1e-3
"""A step may be cut off by this much: it hardly saw what is behind the root."""

TINY = 1e-6
"""A step may be cut off that early: what its later stages saw changes it by the square of this."""

SAMPLES = np.concatenate([[0, AHEAD], np.linspace(0, 1, 9)[1:], [1 + AHEAD]])

BISECTIONS, NEWTON_STEPS = 8, 4

STEEP, CLIMBS = 4, 36
"""A peak may be that much higher than its highest sample, in drops to the next ones; and how often its interval is cut."""


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
        # Not behind a jump at its end, but moving with theta there as elsewhere.
        time = time + lax.stop_gradient(inside(time, t, t_end) - time)
        return problem.looked_up(time, evaluate(*split_rows(row), time, problem.y0.dtype, problem.y0.size))

    def beyond(times: Float[Array, " n"]) -> Float[Array, " pairs"]:
        """How far above and below their pieces the lags look."""
        return jnp.concatenate([times - view.upper, view.lower - times])

    thetas = jnp.asarray(SAMPLES, t.dtype)
    times = jax.vmap(looked_up)(thetas)
    heights = jnp.where(np.concatenate([tracked, tracked]), jax.vmap(beyond)(times), -jnp.inf)
    outside = heights > slack
    leaves = jnp.any(outside[1:] & ~outside[:-1], axis=1)
    before = jnp.where(jnp.any(leaves), jnp.argmax(leaves), len(SAMPLES) - 2).astype(jnp.int32)
    height = lambda theta: beyond(looked_up(theta))
    top, valley = _hidden_top(height, heights, before, thetas, slack)
    hidden = jnp.isfinite(top)
    before = jnp.where(hidden, valley, before)
    bracket = (read(thetas, before), jnp.where(hidden, top, read(thetas, before + 1)))
    found = jnp.any(leaves) | hidden

    locate = lambda: _root(height, ~read(outside, before) & np.concatenate([tracked, tracked]), bracket, slack)
    theta, pair = lax.cond(unvmap_any(found), locate, lambda: (jnp.ones_like(t), jnp.zeros((), jnp.int32)))
    stayed = (outside[0] & outside[-2]).astype(jnp.int32)
    astray = jnp.where(tracked, stayed[:n] - stayed[n:], 0)
    return Crossing(found, theta, pair % n, pair < n, astray, times, t + thetas * (t_end - t))


def _hidden_top(height, heights: Float[Array, "samples pairs"], before: Int[Array, ""], thetas, slack):
    """(Where between two samples, up to number `before`, a lag is outside its piece for a moment, or ∞; the one in front).

    That may be where a sample is higher than both its neighbours, and as near to the end of the piece as to them.
    """
    left, middle, right = heights[:-2], heights[1:-1], heights[2:]
    rise = STEEP * jnp.maximum(middle - left, middle - right)
    near = (middle >= left) & (middle >= right) & (middle <= slack) & (middle + rise > slack)
    near = near & (np.arange(len(SAMPLES) - 2, dtype=np.int32) < before)[:, None]
    number = jnp.argmax(jnp.where(near, middle + rise, -jnp.inf)).astype(jnp.int32)
    valley, pair = number // heights.shape[1], number % heights.shape[1]
    nowhere = jnp.full((), jnp.inf, thetas.dtype)

    def climb():
        at = lambda theta: read(height(theta), pair)
        top = _top(at, read(thetas, valley), read(thetas, valley + 2))
        return jnp.where(jnp.any(near) & (at(top) > slack), top, nowhere)

    return lax.cond(unvmap_any(jnp.any(near)), climb, lambda: nowhere), valley


def _top(function, low: Float[Array, ""], high: Float[Array, ""]) -> Float[Array, ""]:
    """Where a function with one peak is highest, by golden sections."""
    ratio = (5**0.5 - 1) / 2

    def cut(_, ends):
        low, high = ends
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        falls = function(a) > function(b)
        return jnp.where(falls, low, a), jnp.where(falls, b, high)

    low, high = lax.fori_loop(0, CLIMBS, cut, (low, high))
    return (low + high) / 2


def _root(beyond, armed, bracket, slack):
    """(Where the first of the pairs that are `armed` passes zero, which one it is): bisection, then Newton's method."""
    hit = lambda theta: (beyond(theta) > slack) & armed

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        before = ~jnp.any(hit(middle))
        return jnp.where(before, middle, low), jnp.where(before, high, middle)

    _, high = lax.fori_loop(0, BISECTIONS, halve, bracket)
    passed = hit(high)
    each = np.eye(len(passed), dtype=bool)
    # Each pair at a place of its own: of two lags that pass almost together, the first one counts.
    at = lambda thetas: jnp.sum(jnp.where(each, jax.vmap(beyond)(thetas), 0), axis=1)

    def improve(_, thetas):
        values, slopes = jax.jvp(at, (thetas,), (jnp.ones_like(thetas),))
        better = jnp.maximum(thetas - values / jnp.where(slopes == 0, 1, slopes), 0)
        # Where α only touches ξ, the method goes astray.
        good = (slopes != 0) & (better <= bracket[1]) & (jnp.abs(at(better)) < jnp.abs(values))
        return jnp.where(good, better, thetas)

    thetas = lax.fori_loop(0, NEWTON_STEPS, improve, jnp.full(len(passed), high, high.dtype))
    pair = jnp.argmin(jnp.where(passed, thetas, jnp.inf)).astype(jnp.int32)
    return read(thetas, pair), pair


def landing_time(problem: Problem, row: Inexact[Array, " row"], theta, lag: Int[Array, ""], source_time) -> Float[Array, ""]:
    """The time of the crossing, moving with the step, the lag and the source that it looks at (forward mode)."""
    (t, t_end), _ = split_rows(row)
    time = lax.stop_gradient(t + theta * (t_end - t))
    miss, slope = jax.jvp(lambda time: miss_at(problem, row, time, lag, source_time), (time,), (jnp.ones_like(time),))
    slope = lax.stop_gradient(slope)
    held = (slope == 0) | ~jnp.isfinite(miss) | ~jnp.isfinite(slope)
    return time - jnp.where(held, 0, (miss - lax.stop_gradient(miss)) / jnp.where(held, 1, slope))


def miss_at(problem: Problem, row: Inexact[Array, " row"], time, lag: Int[Array, ""], source_time) -> Float[Array, ""]:
    """`α(t, p(t)) - ξ`, zero at the breakpoint."""
    state = evaluate(*split_rows(row), time, problem.y0.dtype, problem.y0.size)
    return read(problem.looked_up(time, state), lag) - source_time
