"""One step whose stages look the past up as they go, repeated until what they see of the step itself agrees with it.

A stage that looks back by less than it has advanced looks into the step that is being taken. It then reads the polynomial
of the step's last repetition, a *sweep*: first of a guess, then of the result, until the two agree. A delay of zero needs no
special case.
"""

import math
from collections.abc import Callable

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int

from .._method import combine, node_times
from .._method._step import implicit_step, output_error
from .._past import INITIAL_FUNCTION, make_row, split_rows, state_at
from .._problem import Problem
from .._setup import Setup
from .._xla._buffer import read
from .._xla._compat import unvmap_any
from .._xla._fold import any_of, fold, largest
from .._xla._neighbours import inside, just_after
from ._lookup import View, choose, delayed_states, flags, slope_flags
from ._sums import edge_links, history_sums, own_sums, row_sums

SWEEPS, FIXED_SWEEPS = 10, 50
"""How often a step is repeated at most, with adaptive steps (which can be made shorter) and with fixed ones."""

SLOPE_SWEEPS, TRANSIENT = 64, 3
"""How often a step that sees its own derivative is repeated at most, and the slope at its start where it depends on itself.
Each sweep gains the share of the derivative that the field passes on, however short the step: with 0.6 of it and ten sweeps,
steps of 2e-10 did not settle (test F5). The first few may gain nothing: until slopes are those of a polynomial."""

TANGENT_SWEEPS, MOST_TANGENT_SWEEPS = 16, 256
"""How many sweeps are differentiated in forward mode, from the point to which they converged: each gains a factor, about ten
where ten sweeps suffice. (No fewer, though tangents may be settled: those of tangents need not be.)"""

ROUNDED = 64
"""The change, in units of what is to be reached, at which sweeps with fixed steps end where it no longer falls."""

SETTLED, LOST = 1024, 2.0**24
"""The change of a tangent, in roundings of it, at which these stop, and that with which they have failed after the most."""

NEGLIGIBLE = 1024
"""A change of a tangent, in roundings of the tangents given, that is none."""


class Start(eqx.Module):
    """Where a step starts: the vector field there, and the rows that the lags read for it."""

    t: Float[Array, ""]
    y: Inexact[Array, " d"]
    slope: Inexact[Array, " d"]
    links: Int[Array, " n"]
    guesses: Int[Array, " n"]


class Sweep(eqx.Module):
    """What a step from its start to t_end found: its row, its end, and the rows that were read by each stage and lag."""

    row: Inexact[Array, " row"]
    y_end: Inexact[Array, " d"]
    error: Inexact[Array, " d"] | None
    slope_end: Inexact[Array, " d"]
    links: Int[Array, "stages n"]
    count: Int[Array, ""]
    """How many sweeps it took."""
    converged: Bool[Array, ""]


def take_sweeps(
    problem: Problem, setup: Setup, view: View, start: Start, t_end, guess: Inexact[Array, " row"], scale
) -> Sweep:
    """The step from `start` to t_end. Sweeps stop where its coefficients change by less than `scale`."""
    sums = (
        sums_of_past(problem, setup, view, start, node_times(setup.method, start.t, t_end), t_end)
        if problem.sums is not None
        else None
    )
    inputs = (problem, view, start, t_end, sums)
    if not any(flags(problem)[1]):
        return sweep_once(setup, inputs, guess)
    return _converge(inputs, guess, scale, setup)


@eqx.filter_custom_jvp
def _converge(inputs, guess, scale, setup: Setup) -> Sweep:
    most, patience = _most_sweeps(inputs[0], setup)
    number, d = inputs[1].past.count, inputs[0].y0.size

    def again(carry):
        sweep, change = carry
        new = sweep_once(setup, inputs, sweep.row)
        difference = jnp.abs(new.row - sweep.row)[2:].reshape(-1, d).real
        new_change = largest(fold(jnp.add, difference) / scale)
        into_itself = any_of(new.links == number)
        # With fixed steps the scale is one of rounding, which may be larger where terms of the field cancel.
        close = jnp.array(False) if setup.adaptive else (new_change <= ROUNDED) & ~(new_change < change / 2)
        settled = new.converged & (~into_itself | (new_change <= 1) | close)
        new = eqx.tree_at(lambda s: (s.count, s.converged), new, (sweep.count + 1, settled))
        # A change that grows, or is not a number, will not settle.
        hopeless = ~settled & ~(new_change <= 2 * change) & (sweep.count >= patience)
        return new, jnp.where(hopeless, -jnp.inf, new_change)

    def unsettled(carry):
        sweep, change = carry
        return ~sweep.converged & (sweep.count < most) & (change >= 0)

    start = (_no_sweep(inputs[0], guess, setup), jnp.full((), jnp.inf, scale.dtype))
    return lax.while_loop(unsettled, again, start)[0]


def _no_sweep(problem: Problem, guess: Inexact[Array, " row"], setup: Setup) -> Sweep:
    """What is known before the first sweep."""
    method, nothing = setup.method, jnp.zeros(problem.y0.shape, problem.y0.dtype)
    return Sweep(
        row=guess,
        y_end=nothing,
        error=None if method.b_error is None else nothing,
        slope_end=nothing,
        links=jnp.zeros((len(method.c), len(problem.lags)), jnp.int32),
        count=jnp.zeros((), jnp.int32),
        converged=jnp.array(False),
    )


def _most_sweeps(problem: Problem, setup: Setup) -> tuple[int, int]:
    """(How often a step is repeated at most, after how many sweeps they should converge)."""
    if np.any(slope_flags(problem) & flags(problem)[1]):
        return SLOPE_SWEEPS, TRANSIENT
    return (SWEEPS if setup.adaptive else FIXED_SWEEPS), 0


@_converge.def_jvp
def _converge_jvp(primals, tangents):
    """The tangent of the fixed point: the sweeps from there on, with the point itself held, are a contraction."""
    inputs, _, scale, setup = primals
    found = _converge(*primals)
    row = lax.stop_gradient(found.row)
    moving = jax.tree.map(lambda x: x is not None, tangents[0], is_leaf=lambda x: x is None)
    variables, constants = eqx.partition(inputs, moving)
    sweep_of = lambda variables, row: sweep_once(setup, eqx.combine(variables, constants), row)
    along = lambda row, row_dot: jax.jvp(sweep_of, (variables, row), (tangents[0], row_dot))
    # (A tangent that is zero but for rounding does not settle, in units of those of the problem.)
    given = [jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tangents[0][0]) if leaf.size]
    size = jnp.max(jnp.stack([jnp.zeros((), scale.dtype), *(leaf.astype(scale.dtype) for leaf in given)]))
    eps = jnp.finfo(scale.dtype).eps
    rounding = lambda x, most: eps * (most * jnp.max(jnp.abs(x)) + NEGLIGIBLE * size)
    unsettled = lambda new, old, most: ~(jnp.max(jnp.abs(new - old)) <= rounding(new, most))

    def again(carry):
        k, row, row_dot, _ = carry
        new, new_dot = along(row, row_dot)
        return k + 1, new.row, new_dot.row, unsettled(new_dot.row, row_dot, SETTLED)

    more = lambda carry: (carry[0] < TANGENT_SWEEPS) | (carry[3] & (carry[0] < MOST_TANGENT_SWEEPS))
    outset = (jnp.int32(0), row, jnp.zeros_like(row), jnp.array(True))
    _, row, row_dot, _ = lax.while_loop(more, again, outset)
    _, tangent = along(row, row_dot)
    # Where the solution stands still a step may be so long that its sweeps do not converge.
    lost = unsettled(tangent.row, row_dot, LOST)
    spoilt = lambda dx: dx * jnp.where(lost, jnp.nan, 1).astype(dx.dtype)
    return found, jax.tree.map(lambda x, dx: spoilt(dx) if eqx.is_inexact_array(x) else None, found, tangent)


def sweep_once(setup: Setup, inputs: tuple, own: Inexact[Array, " row"]) -> Sweep:
    """One sweep, whose stages see the step itself as `own`."""
    problem, view, start, t_end, sums = inputs
    number = view.past.count

    def look(stage, t, y, guesses):
        times = problem.looked_up(t, y)
        links = view.find(times, guesses, problem)
        rows = jnp.where((links == number)[:, None], own[None], view.past.read(links))
        delayed = delayed_states(problem, times, links, rows, view.lower, view.upper)
        return with_sums(problem, setup, delayed, sums, (own, number), start.t, t_end, stage, t, links), links

    return run_stages(problem, setup, start, t_end, look, own.dtype)


def run_stages(problem: Problem, setup: Setup, start: Start, t_end, look: Callable, dtype) -> Sweep:
    """The stages of a step. `look(stage, t, y, guesses)` gives the delayed states that a stage sees from (t, y), and which
    rows they came from."""
    run = _implicit_stages if setup.method.implicit else _explicit_stages
    return run(problem, setup, start, t_end, look, dtype)


def _explicit_stages(problem: Problem, setup: Setup, start: Start, t_end, look: Callable, dtype) -> Sweep:
    method, guesses = setup.method, start.guesses
    h = (t_end - start.t).astype(start.y.dtype)
    slopes, links = [start.slope], [start.links]
    times = jnp.unstack(inside(node_times(method, start.t, t_end), start.t, t_end))
    for stage, a in enumerate(method.a, start=1):
        time, y = times[method.node_of[stage]], start.y + h * combine(a, slopes)
        delayed, found = look(stage, time, y, guesses)
        slopes.append(problem.field(time, y, delayed))
        links.append(found)
        guesses = found
    return Sweep(
        row=make_row(method, start.t, t_end, start.y, [h * slope for slope in slopes], dtype),
        y_end=start.y + h * combine(method.b, slopes),
        error=None if method.b_error is None else h * combine(method.b_error, slopes),
        slope_end=slopes[method.end],
        links=jnp.stack(links),
        count=jnp.ones((), jnp.int32),
        converged=jnp.array(True),
    )


def _implicit_stages(problem: Problem, setup: Setup, start: Start, t_end, look: Callable, dtype) -> Sweep:
    """Diffrax's step. The rows that a stage reads are taken down afterwards, from the polynomial's state there."""
    method = setup.method
    share = lambda t: (t - start.t) / jnp.where(t_end > start.t, t_end - start.t, 1)
    stage_at = lambda t: jnp.argmin(jnp.abs(jnp.asarray(method.c, t.dtype) - share(t))).astype(jnp.int32)
    see = lambda t, time, y: look(stage_at(t), time, y, start.guesses)[0]
    step = implicit_step(setup.solver, method, problem, start.t, t_end, start.y, start.slope, see)
    row = make_row(method, start.t, t_end, start.y, step.increments, dtype)
    state = lambda t: state_at(row, t, start.y)
    links = [start.links]
    for stage, c in enumerate(method.c[1:], start=1):
        time = start.t + c * (t_end - start.t)
        links.append(look(stage, time, state(time), start.guesses)[1])
    error = step.error
    if method.probe is not None and error is not None and setup.adaptive:
        theta, _ = method.probe
        time = start.t + theta * (t_end - start.t)
        delayed, _ = look(int(np.argmin(np.abs(method.c - theta))), time, state(time), start.guesses)
        error = output_error(step, method, problem, start.t, t_end, start.y, delayed)
    return Sweep(
        row=row,
        y_end=step.y_end,
        error=error,
        slope_end=step.slope_end,
        links=jnp.stack(links),
        count=jnp.ones((), jnp.int32),
        converged=jnp.asarray(step.result == dfx.RESULTS.successful),
    )


def start_at(problem: Problem, setup: Setup, view: View, t, y, guesses: Int[Array, " n"]) -> Start:
    """The start of a step at (t, y). The step itself, seen from its start, is y."""
    times, count = problem.looked_up(just_after(t), y), view.past.count
    links = view.find(times, guesses, problem)
    itself = links == count
    rows = view.past.read(jnp.where(itself, count - 1, links))
    sources = jnp.where(itself & (count == 0), INITIAL_FUNCTION, links)
    delayed = delayed_states(problem, times, sources, rows, view.lower, view.upper)
    reads_slope = slope_flags(problem)
    plain = choose(reads_slope, jnp.zeros_like(itself), itself)
    delayed = jnp.where(plain[:, None], y[None], delayed)
    sums = None
    if problem.sums is not None:
        before = Start(t, y, jnp.zeros_like(y), links, guesses)
        sums = sums_of_past(problem, setup, view, before, just_after(t)[None], t)[0]
    field = lambda delayed: problem.field(just_after(t), y, delayed if sums is None else (delayed, sums))
    overlaps = flags(problem)[1]
    if not np.any(overlaps):
        return Start(t, y, field(delayed), links, guesses)
    # Where the step itself is looked at, from its start, that is y, but moves with how far behind that is looked at.
    behind = times - t
    moves = (behind - lax.stop_gradient(behind)).astype(y.dtype)[:, None]
    delayed = jnp.where(plain[:, None], delayed + moves * lax.stop_gradient(field(delayed))[None], delayed)
    if not np.any(reads_slope & overlaps):
        return Start(t, y, field(delayed), links, guesses)
    own = (itself & reads_slope)[:, None]
    slope = lax.cond(unvmap_any(any_of(own)), lambda: _own_slope(field, delayed, own), lambda: field(delayed))
    return Start(t, y, slope, links, guesses)


def _own_slope(field: Callable, delayed: Inexact[Array, "n d"], own: Bool[Array, "n 1"]) -> Inexact[Array, " d"]:
    """The slope at the start of a step that its own derivative enters: where the delay of a derivative vanishes.

    Repeated from what the step before (or the initial function) ended with, as sweeps are; infinite if it does not settle.
    """
    again = lambda _, slope: field(jnp.where(own, slope[None], delayed))
    slope = lax.fori_loop(0, SLOPE_SWEEPS, again, field(delayed))
    last = again(0, slope)
    size = largest(jnp.abs(last))
    lost = largest(jnp.abs(last - slope)) > 1e5 * jnp.finfo(size.dtype).eps * size
    return jnp.where(lost, jnp.inf, last)


def sums_of_past(problem: Problem, setup: Setup, view: View, start: Start, times: Float[Array, " nodes"], t_end):
    """What the integrals over the past have of the history and of the rows, seen from several times of a step."""
    times = inside(times, start.t, t_end)
    links = lax.stop_gradient(edge_links(problem, view, times, start.guesses))
    past = row_sums(problem, view.past.rows, view.past.count, start.t, times, links, setup.method.order)
    return past + history_sums(problem, times, links, view.pieces, view.start)


def with_sums(problem: Problem, setup: Setup, delayed, sums, own: tuple, start, t_end, stage, t, links):
    """The delayed states that a stage sees, together with the sums if there are any: `sums` are those over the past at all
    nodes, `own` is the row of the step and its number."""
    if problem.sums is None:
        return delayed
    method, (row, number) = setup.method, own
    if method.implicit:  # which asks at times of its own, at its nodes and at the probe
        node = jnp.argmin(jnp.abs(node_times(method, start, t_end) - t)).astype(jnp.int32)
    else:
        node = jnp.asarray(method.node_of, jnp.int32)[stage]
    return delayed, read(sums, node) + own_sums(problem, row, start, t, links, number, method.order)


def continued(row: Inexact[Array, " row"], start: Start, t_end, smooth: Bool[Array, ""]) -> Inexact[Array, " row"]:
    """A guess for the row of the next step: that of the last one continued if nothing came between, else a line."""
    d = start.y.size
    (begin, end), coefficients = split_rows(row)
    powers = coefficients.reshape(-1, d)
    ratio = ((t_end - end) / jnp.where(end > begin, end - begin, 1)).astype(row.dtype)
    # p(1 + r θ) = Σ_k θ^k r^k Σ_j C(j, k) p_j
    numbers = range(len(powers))
    binomials = [[math.comb(j, k) for j in numbers] for k in numbers]
    shifted = [combine(weights, list(jnp.unstack(powers))) * ratio**k for k, weights in enumerate(binomials)]
    line = [start.y, (t_end - start.t).astype(start.y.dtype) * start.slope, *[jnp.zeros_like(start.y)] * (len(powers) - 2)]
    usable = smooth & (end > begin) & (end == start.t)
    chosen = [jnp.where(usable, a, b.astype(row.dtype)) for a, b in zip(shifted, line, strict=True)]
    chosen[0] = start.y.astype(row.dtype)
    interval = jnp.stack([start.t, t_end]).astype(row.dtype)
    return jnp.concatenate([interval, *chosen])
