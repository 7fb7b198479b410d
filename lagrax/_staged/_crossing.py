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

from .._past import split_rows, state_at
from .._problem import Problem
from .._xla._buffer import read
from .._xla._compat import unvmap_any
from .._xla._fold import any_of, first_of, fold, highest_of
from .._xla._neighbours import inside, just_after
from ._lookup import View, choose, flags, frozen, slack_of

AHEAD = 0.01
"""A root this little behind the end of a step, in its lengths, is taken as its end."""

BEYOND = 1e-4
"""How far behind the root a step that is taken again ends, in its lengths: the stages see little of the continuation."""

NEAR = 1e-3
"""A step may be cut off by this much: it hardly saw what is behind the root."""

TINY = 1e-6
"""A step may be cut off that early: what its later stages saw changes it by the square of this."""

SAMPLES = np.concatenate([[0, AHEAD], np.linspace(0, 1, 9)[1:], [1 + AHEAD]])

OFF = 2.0**7
"""A lag that is found this many times of rounding outside its piece has jumped there, at a time that depends on nothing that
is known."""

MOST_TRIALS = 64
"""How often a root is looked for at most; four to eight times are usual."""

STEEP, CLIMBS = 4, 36
"""A peak may be that much higher than its highest sample, in drops to the next ones; and how often its interval is cut."""


class Crossing(eqx.Module):
    """The first end of a piece that is passed on a step, at `theta` of its length: by which lag, and in which direction."""

    found: Bool[Array, ""]
    theta: Float[Array, ""]
    lag: Int[Array, ""]
    up: Bool[Array, ""]
    looked_up: Float[Array, "samples n"]
    """The times looked at along the step."""
    times: Float[Array, " samples"]
    sound: Bool[Array, ""]
    """Whether all of them are numbers, as long as was promised, and not in the future."""

    @property
    def lands(self) -> Bool[Array, ""]:
        """Whether the step may be cut off there as it is."""
        return self.found & ((self.theta >= 1 - NEAR) | (self.theta <= TINY))


def first_crossing(problem: Problem, view: View, row: Inexact[Array, " row"], at_jump: Bool[Array, ""]) -> Crossing:
    """The first crossing on a step, by more than rounding; on one that ends `at_jump`, a declared one, before that: lags may
    jump there too."""
    slack = slack_of(problem)
    row, problem = frozen((row, problem))
    (t, t_end), n = split_rows(row)[0], len(problem.lags)
    tracked, _ = flags(problem)

    def looked_up(theta):
        # Behind a jump at its start, not behind one at its end.
        time = jnp.maximum(t + theta * (t_end - t), just_after(t))
        time = inside(jnp.where(at_jump, jnp.minimum(time, t_end), time), t, t_end)
        return problem.looked_up(time, state_at(row, time, problem.y0))

    def beyond(times: Float[Array, " n"]) -> Float[Array, " pairs"]:
        """How far above and below their pieces the lags look."""
        heights = jnp.concatenate([times - view.upper, view.lower - times])
        return choose(np.concatenate([tracked, tracked]), heights, jnp.full_like(heights, -jnp.inf))

    thetas = jnp.asarray(SAMPLES, t.dtype)
    times = t + thetas * (t_end - t)
    seen = jax.vmap(looked_up)(thetas)
    promised = jnp.stack([promise(lag, problem) for lag in problem.lags])
    sound = (times[:, None] - seen >= jnp.maximum(promised, 0) - slack) & (seen > -jnp.inf)
    nowhere = (jnp.array(False), jnp.ones_like(t), jnp.zeros((), jnp.int32))
    height = lambda theta: beyond(looked_up(theta))
    search = lambda: (*_search(height, thetas, jax.vmap(beyond)(seen), slack), ~any_of(~sound))
    calm = _is_calm(seen, sound, view, slack)
    found, theta, pair, all_sound = lax.cond(unvmap_any(~calm), search, lambda: (*nowhere, jnp.array(True)))
    return Crossing(found, theta, pair % n, pair < n, seen, times, all_sound)


def _is_calm(seen: Float[Array, "samples n"], sound: Bool[Array, "samples n"], view: View, slack) -> Bool[Array, ""]:
    """Whether nothing can have happened, as on most steps: all lags go forwards, end in their pieces, and are sound."""
    inside = (seen[-1] <= view.upper + slack) & (seen[1] >= view.lower - slack) & sound[0]
    return ~any_of(~(sound[1:] & (seen[1:] > seen[:-1]))) & ~any_of(~inside)


def promise(lag, problem: Problem) -> Float[Array, ""]:
    """What a lag must not be shorter than, -∞ if nothing was promised."""
    given = None if lag.overlaps else lag.shortest()
    return lax.stop_gradient(jnp.asarray(-jnp.inf if given is None else given, problem.t0.dtype))


def _rising(heights: Float[Array, "samples pairs"], slack) -> Bool[Array, "inner pairs"]:
    """Where a lag may be outside its piece for a moment between two samples: where a sample is higher than both its
    neighbours, and as near to the end of the piece as to them."""
    left, middle, right = heights[:-2], heights[1:-1], heights[2:]
    rise = STEEP * jnp.maximum(middle - left, middle - right)
    return (middle >= left) & (middle >= right) & (middle <= slack) & (middle + rise > slack)


def _search(height, thetas: Float[Array, " samples"], heights: Float[Array, "samples pairs"], slack):
    """(Whether a pair leaves its piece, where first, which one).

    One that is outside at the start already leaves it there, as where kinks that are hardly apart were passed together by
    rounding, or where a lag jumps: else it would read the piece's continuation, however far behind.
    """
    outside = heights > slack
    at_once = any_of(outside[0])
    leaves = fold(jnp.logical_or, (outside[1:] & ~outside[:-1]).T)
    before = jnp.minimum(first_of(leaves), len(SAMPLES) - 2)
    sampled = lambda k: (read(thetas, k), read(heights, k))
    hidden, valley, top = _hidden_top(height, thetas, heights, before, slack)
    low = sampled(jnp.where(hidden, valley, before))
    high = jax.tree.map(lambda a, b: jnp.where(hidden, a, b), top, sampled(before + 1))
    theta, pair = _root(height, low, high, slack)
    outermost = highest_of(jnp.where(outside[0], heights[0], -jnp.inf))
    found = at_once | any_of(leaves) | hidden
    return found, jnp.where(at_once, thetas[0], theta), jnp.where(at_once, outermost, pair)


def _hidden_top(height, thetas, heights: Float[Array, "samples pairs"], before: Int[Array, ""], slack):
    """(Whether a lag is outside its piece for a moment between two samples, up to number `before`; the sample in front;
    where it is highest, and the heights there)."""
    rising = _rising(heights, slack) & (jnp.arange(len(SAMPLES) - 2, dtype=jnp.int32) < before)[:, None]

    def climb():
        number = highest_of(jnp.where(rising, heights[1:-1], -jnp.inf).reshape(-1))
        valley, pair = number // heights.shape[1], number % heights.shape[1]
        top = _top(lambda theta: read(height(theta), pair), read(thetas, valley), read(thetas, valley + 2))
        there = height(top)
        return any_of(rising) & (read(there, pair) > slack), valley, (top, there)

    nothing = lambda: (jnp.array(False), jnp.zeros((), jnp.int32), (thetas[0], heights[0]))
    return lax.cond(unvmap_any(any_of(rising)), climb, nothing)


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


def _root(height, low: tuple, high: tuple, slack):
    """(Where the first of the pairs that leave their pieces between two places passes zero, which one it is).

    The places come with the heights there. By regula falsi, as Illinois has it, on the highest of the pairs: of two lags
    that pass almost together, the first one counts.
    """
    (start, at_start), (end, at_end) = low, high
    leaving = (at_start <= slack) & (at_end > slack)
    highest = lambda heights: fold(jnp.maximum, jnp.where(leaving, heights, -jnp.inf))

    def improve(carry):
        k, _, (x1, f1), (x2, f2) = carry
        x = x1 - f1 * ((x1 - x2) / (f1 - f2))
        f = highest(height(x))
        # The end of the bracket that stays counts half: else it would stay for ever.
        same = (f > 0) == (f1 > 0)
        other = (jnp.where(same, x2, x1), jnp.where(same, f2 / 2, f1))
        done = (jnp.abs(f) <= slack / 128) | (x == x1) | (x == x2)
        return k + 1, done, (x, f), other

    first, last = highest(at_start), highest(at_end)
    outset = (jnp.int32(0), ~(first < 0), (end, last), (start, first))
    _, _, (theta, _), _ = lax.while_loop(lambda carry: ~carry[1] & (carry[0] < MOST_TRIALS), improve, outset)
    # (A lag that is not a number in between has no root.)
    theta = jnp.where(first < 0, jnp.where(jnp.isfinite(theta), theta, end), start)
    return theta, highest_of(jnp.where(leaving, height(theta), -jnp.inf))


def landing_time(problem: Problem, row: Inexact[Array, " row"], theta, lag: Int[Array, ""], source_time) -> Float[Array, ""]:
    """The time of the crossing, moving with the step, the lag and the source that it looks at (forward mode)."""
    (t, t_end), _ = split_rows(row)
    time = lax.stop_gradient(t + theta * (t_end - t))
    miss, slope = jax.jvp(lambda time: miss_at(problem, row, time, lag, source_time), (time,), (jnp.ones_like(time),))
    slope = lax.stop_gradient(slope)
    held = (slope == 0) | ~jnp.isfinite(slope) | ~is_met(miss, problem)
    return time - jnp.where(held, 0, (miss - lax.stop_gradient(miss)) / jnp.where(held, 1, slope))


def is_met(miss, problem: Problem) -> Bool[Array, ""]:
    """Whether a lag looks at the end of its piece, but for rounding, where it misses it by `miss`."""
    return jnp.abs(miss) <= OFF * slack_of(problem)


def miss_at(problem: Problem, row: Inexact[Array, " row"], time, lag: Int[Array, ""], source_time) -> Float[Array, ""]:
    """`α(t, p(t)) - ξ`, zero at the breakpoint."""
    state = state_at(row, time, problem.y0)
    return read(problem.looked_up(time, state), lag) - source_time
