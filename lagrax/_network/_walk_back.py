"""The backward pass over the steps of a network, as in `_planned/_walk_back.py`.

The rows that elements looked up are found again, from the last to the first, so that the forward pass has nothing to write
down. The cotangents of what they saw are added to single components of rows.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, Int

from .._control import tolerance
from .._method import node_times
from .._method._step import start_slope, take_step
from .._problem import Problem
from .._results import failed
from .._setup import Setup
from .._trajectory import DECLARED, END, Cotangents, Trajectory, add_to, spoil
from .._xla._buffer import read, write
from .._xla._compat import unvmap_max
from ._kink import applies, pull_corners, with_corners
from ._lookup import hunt_backwards, look, query_times
from ._memory import Memory, clock, initial_rows, make_row, polynomial

SWEEPS = 64
"""How often a transposed step is repeated at most."""

SETTLED, LOST = 64, 2.0**24
"""The change of a cotangent, in roundings of it, at which the transposed sweeps stop, and that with which they failed."""


class Bars(eqx.Module):
    """The cotangents while walking back: of the state at which the last step walked over starts, of t0, of the row before it
    (read in advance), of all rows, of their intervals, of the delays, of the ends of the steps, and of the problem."""

    y: Inexact[Array, " d"]
    t0: Float[Array, ""]
    row: Inexact[Array, "d powers"]
    rows: Inexact[Array, "places powers"]
    clock: Any
    delays: Float[Array, " e"]
    times: Any
    problem: Any


class Seen(eqx.Module):
    """What a step looked up: rows, where in them, the coefficients, and which of them belong to the step itself."""

    links: Int[Array, "nodes e"]
    inverse: Float[Array, "nodes e"]
    theta: Float[Array, "nodes e"]
    coefficients: Inexact[Array, "nodes e powers"]
    within: Any


def walk_back(trajectory: Trajectory, given: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    """(The cotangent of the problem's perturbed variables, how often the vector field was evaluated)."""
    variables, constants = eqx.partition(problem, eqx.is_inexact_array)
    variables, fixed = eqx.partition(variables, perturbed)
    constants = eqx.combine(constants, fixed)
    moving = bool(jax.tree.leaves(perturbed) and any(jax.tree.leaves((perturbed.t0, perturbed.t1, perturbed.jump_ts))))
    memory: Memory = trajectory.record.memory
    bars = _walk(trajectory, given, variables, constants, moving, setup)

    first, (_, d, powers) = memory.first, memory.rows.shape
    delays = lambda v: _delays(eqx.combine(v, constants))
    history = lambda v: initial_rows(eqx.combine(v, constants), setup.method)
    _, to_delays = jax.vjp(delays, variables)
    _, to_history = jax.vjp(history, variables)
    shares = (to_delays(bars.delays)[0], to_history(bars.rows[: first * d].reshape(first, d, powers))[0])
    total = jax.tree.map(lambda a, b, c: a + b + c, bars.problem, *shares)
    if moving:
        total = _move_mesh(trajectory, bars, given, total)
    total = add_to(total, lambda p: (p.y0,), (bars.y,))
    total = _refuse_jumps(total, trajectory, given, problem, perturbed, setup)
    total = spoil(total, failed(trajectory.result), given.asked)
    return total, trajectory.count * setup.method.stages


def _delays(problem: Problem) -> Float[Array, " e"]:
    return problem.network.delays(problem.lags, problem.y0.size, problem.t0.dtype)


def _walk(trajectory: Trajectory, given: Cotangents, variables: Any, constants: Any, moving: bool, setup: Setup) -> Bars:
    memory: Memory = trajectory.record.memory
    size, d, powers = memory.rows.shape
    problem = eqx.combine(variables, constants)
    last, steps = jnp.maximum(trajectory.count - 1, 0), unvmap_max(trajectory.count)
    rows, intervals = _as_memory(given.rows, memory)
    zeros = jnp.zeros((size, d, powers), memory.rows.dtype)
    rows = lax.dynamic_update_slice(zeros, rows, (np.int32(memory.first), np.int32(0), np.int32(0))).reshape(-1, powers)
    bars = Bars(
        y=given.y_end,
        t0=jnp.zeros_like(problem.t0),
        row=_read_row(rows, last + memory.first, d),
        rows=rows,
        clock=jnp.zeros_like(memory.clock) if moving else None,
        delays=jnp.zeros_like(_delays(problem)),
        times=intervals if moving else None,
        problem=jax.tree.map(jnp.zeros_like, variables),
    )

    def body(carry):
        k, pointers, bars = carry
        i = trajectory.count - 1 - k
        # A lane whose steps are all walked over adds nothing.
        active = i >= 0
        masked = lambda tree: jax.tree.map(lambda x: jnp.where(active, x, jnp.zeros_like(x)), tree)
        quiet = eqx.tree_at(lambda b: (b.y, b.row), bars, masked((bars.y, bars.row)))
        pointers, new = _step_back(jnp.maximum(i, 0), active, pointers, quiet, memory, variables, constants, setup)
        return k + 1, pointers, eqx.tree_at(lambda b: b.y, new, jnp.where(active, new.y, bars.y))

    pointers = jnp.full(bars.delays.shape, last + memory.first, jnp.int32)
    start = (jnp.zeros((), jnp.int32), pointers, bars)
    return lax.while_loop(lambda carry: carry[0] < steps, body, start)[2]


def _as_memory(rows: Inexact[Array, "steps row"], memory: Memory):
    """Cotangents of rows as others have them (`_past.py`), as those of rows in the memory and of their intervals."""
    _, d, powers = memory.rows.shape
    coefficients = jnp.swapaxes(rows[:, 2:].reshape(-1, powers, d), 1, 2)
    if not jnp.issubdtype(memory.rows.dtype, jnp.complexfloating):
        coefficients = coefficients.real
    return coefficients.astype(memory.rows.dtype), rows[:, :2].real.astype(memory.clock.dtype)


def _read_row(rows: Inexact[Array, "places powers"], number: Int[Array, ""], d: int) -> Inexact[Array, "d powers"]:
    return lax.dynamic_slice(rows, (number * d, jnp.zeros_like(number)), (d, rows.shape[1]))


def _add_at(buffer: Array, number, values: Array) -> Array:
    """The buffer with something added from one place on."""
    start = (number, *[np.int32(0)] * (buffer.ndim - 1))
    return lax.dynamic_update_slice(buffer, lax.dynamic_slice(buffer, start, values.shape) + values, start)


def _step_back(i, active, pointers: Int[Array, " e"], bars: Bars, memory: Memory, variables, constants, setup: Setup):
    """(The rows that the elements read at the start of step i, the cotangents there)."""
    problem, number = eqx.combine(variables, constants), i + memory.first
    t, t_end = read(memory.starts, number), read(memory.ends, number)
    row = read(memory.rows, number)
    seen = _look_again(number, t, t_end, pointers, memory, problem, setup)
    moving = bars.clock is not None

    step = lambda times, y, z, variables: _replay(times, y, z, eqx.combine(variables, constants), setup)
    here = _delays(problem) == 0
    z = polynomial(seen.coefficients, seen.theta)
    z = jnp.where(here, 0, z) if problem.network.overlaps else z
    cornered = with_corners(z, memory, t, t_end, i, 0, problem, setup.method)
    z = lax.optimization_barrier(cornered if seen.within is None else jnp.where(seen.within, z, cornered))
    if moving:
        _, pull = jax.vjp(step, (t, t_end), row[:, 0], z, variables)
    else:
        _, pull_rest = jax.vjp(lambda y, z, variables: step((t, t_end), y, z, variables), row[:, 0], z, variables)
        pull = lambda bar: (None, *pull_rest(bar))
    times_bar, y_bar, z_bar, variables_bar = _pulled(pull, bars, seen, problem)
    z_bar = lax.optimization_barrier(z_bar)
    _, pull_lookup = jax.vjp(polynomial, seen.coefficients, seen.theta)
    coefficients_bar, theta_bar = pull_lookup(z_bar)
    theta_bar = theta_bar * seen.inverse
    if problem.network.overlaps:
        # Elements without delay read the stage, those that look into the step itself have been dealt with.
        coefficients_bar = jnp.where((seen.within | here)[..., None], 0, coefficients_bar)
    _, d, _ = memory.rows.shape
    places = bars.rows.at[seen.links * d + problem.network.senders]
    rows = places.add(coefficients_bar, mode="promise_in_bounds", wrap_negative_indices=False)
    times, clocks = bars.times, bars.clock
    if moving:
        clocks, ends_bar = _pull_times(number, t, t_end, seen, theta_bar, memory, bars, here, setup)
        own = jnp.stack([a + b for a, b in zip(times_bar, ends_bar, strict=True)])
        times = write(times, i, read(times, i) + jnp.where(active, own, 0))
    delays_bar, t0_bar = -jnp.sum(theta_bar, axis=0), bars.t0
    if applies(setup.method):
        bar = z_bar if seen.within is None else jnp.where(seen.within, 0, z_bar)
        corner_bar, (near_bar, clock_bar), ends = pull_corners(bar, memory, t, t_end, i, problem, setup.method)
        place = np.int32(memory.first - 1)
        rows = _add_at(rows, place * np.int32(d), near_bar.reshape(-1, near_bar.shape[-1]))
        delays_bar, t0_bar = delays_bar + corner_bar, t0_bar + ends[0]
        if moving:
            clocks = _add_at(clocks, place, clock_bar)
            times = write(times, i, read(times, i) + jnp.where(active, jnp.stack(ends[1:]), 0))
    new = Bars(
        y=y_bar,
        t0=t0_bar,
        # Read after the writes: before them, the buffer would be copied.
        row=_read_row(rows, jnp.maximum(number - 1, memory.first), d),
        rows=rows,
        clock=clocks,
        delays=bars.delays + delays_bar,
        times=times,
        problem=jax.tree.map(jnp.add, bars.problem, variables_bar),
    )
    return jnp.where(active, seen.links[0], pointers), new


def _replay(times, y: Inexact[Array, " d"], z: Inexact[Array, "nodes e"], problem: Problem, setup: Setup):
    """(The end of a step, its row), given what its elements saw."""
    t, t_end = times
    slope = start_slope(problem, t, y, z)
    step = take_step(setup.solver, setup.method, problem, t, t_end, y, slope, z)
    return step.y_end, make_row(setup.method, y, step.increments)


def _look_again(number, t, t_end, pointers, memory: Memory, problem: Problem, setup: Setup) -> Seen:
    """What step `number` looked up."""
    overlaps = problem.network.overlaps
    times = query_times(problem, setup.method, t, t_end)
    links = hunt_backwards(memory.starts, pointers, times, number if overlaps else number - 1)
    lookup = look(memory, links, times)
    inverse = memory.intervals(lookup.links)[..., 1]
    coefficients = memory.coefficients(lookup.links, problem.network.senders)
    within = (lookup.links == number) & (_delays(problem) > 0) if overlaps else None
    return Seen(lookup.links, inverse, lookup.theta, coefficients, within)


def _pulled(pull, bars: Bars, seen: Seen, problem: Problem):
    """The cotangents of the inputs of a step. One that looked into itself solves r = G(r, …) for its row r: the cotangent w
    of r is replaced by v = w + G_rᵀ v (`_staged/_walk_back.py`)."""
    if seen.within is None:
        return pull((bars.y, bars.row))
    senders = problem.network.senders

    def own_bar(z_bar):
        _, pull_own = jax.vjp(lambda c: polynomial(c, seen.theta), seen.coefficients)
        share = jnp.where(seen.within[..., None], pull_own(z_bar)[0], 0)
        return jnp.zeros_like(bars.row).at[senders].add(jnp.sum(share, axis=0))

    def again(carry):
        k, v, *_ = carry
        pulled = pull((bars.y, v))
        new = bars.row + own_bar(pulled[2])
        size, change = jnp.max(jnp.abs(new)), jnp.max(jnp.abs(new - v))
        rounding = jnp.finfo(size.dtype).eps * size
        settled = ~(change > SETTLED * rounding) | (k + 1 >= SWEEPS)
        lost = jnp.where(settled & ~(change <= LOST * rounding), jnp.nan, 1)
        return k + 1, new, settled, jax.tree.map(lambda x: x * lost.astype(x.dtype), pulled)

    nothing = eqx.filter_eval_shape(lambda: again((jnp.int32(0), bars.row)))[-1]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), nothing)
    start = (jnp.int32(0), bars.row, jnp.array(False), zeros)
    return lax.while_loop(lambda carry: ~carry[2], again, start)[-1]


def _pull_times(number, t, t_end, seen: Seen, time_bar: Float[Array, "nodes e"], memory: Memory, bars: Bars, here, setup):
    """(The cotangents of all rows' intervals, of both ends of the step), given those of the times that were looked at."""
    # θ = (time - start) / length. (Elements without delay look at the time of the stage, whatever the row.)
    _, pull_nodes = jax.vjp(lambda t, t_end: node_times(setup.method, t, t_end), t, t_end)
    time_bar = jnp.where(here, 0, time_bar)
    nodes_bar = pull_nodes(jnp.sum(time_bar, axis=1))
    inverse_bar = jnp.where(seen.inverse > 0, time_bar * seen.theta / jnp.where(seen.inverse > 0, seen.inverse, 1) ** 2, 0)
    clock_bar = jnp.stack([-time_bar, inverse_bar], axis=-1)
    clocks = bars.clock.at[seen.links].add(clock_bar, mode="promise_in_bounds", wrap_negative_indices=False)
    _, pull_clock = jax.vjp(clock, t, t_end)
    ends_bar = pull_clock(read(clocks, number))
    return clocks, tuple(a + b for a, b in zip(nodes_bar, ends_bar, strict=True))


def _move_mesh(trajectory: Trajectory, bars: Bars, given: Cotangents, total: Any) -> Any:
    """Hands the cotangents of the mesh points on to t0, t1 and the declared jumps; others do not move."""
    depends_on, count = trajectory.record.depends_on, trajectory.count
    times: Any = bars.times
    steps = jnp.arange(len(times), dtype=jnp.int32)
    taken = jnp.where((steps < count)[:, None], times, 0)
    # Mesh point i + 1 ends step i and starts step i + 1.
    points = taken[:, 1] + jnp.append(taken[1:, 0], 0) + jnp.where(steps == count - 1, given.t_end, 0)
    points = jnp.where(steps < count, points, 0)
    t1_bar = jnp.sum(jnp.where(depends_on == END, points, 0))
    jumps = trajectory.sources.times.size - 1
    declared = depends_on <= DECLARED
    number = jnp.where(declared, DECLARED - depends_on, jumps)
    jumps_bar = jnp.zeros(jumps + 1, points.dtype).at[number].add(jnp.where(declared, points, 0))[:jumps]
    return add_to(total, lambda p: (p.t0, p.t1, p.jump_ts), (taken[0, 0] + bars.t0, t1_bar, jumps_bar))


def _refuse_jumps(total: Any, trajectory: Trajectory, given: Cotangents, problem: Problem, perturbed: Any, setup: Setup):
    """Raises if y jumps before the solve or at its start and delays are differentiated: when an element sees the jump is
    not tracked, and its derivative would be missing."""
    asked = jax.tree.leaves((perturbed.lags, perturbed.t0, perturbed.jump_ts))
    if not any(asked) or not (problem.may_jump or problem.jump_ts.size):
        return total
    memory: Memory = trajectory.record.memory
    rows = memory.rows[: memory.first]
    ends = jnp.sum(rows, axis=-1)
    following = jnp.concatenate([rows[1:, :, 0], problem.y0[None]])
    allowed = tolerance(problem.y0, setup) + tolerance(ends[-1], setup)
    jumps = jnp.any(jnp.abs(following - ends) > allowed) & given.asked
    return eqx.error_if(
        total,
        jumps,
        "The solution jumps at t0, or the history before it, and there are too many delays to track when each of them sees "
        "that jump, so that derivatives with respect to delays and times would be wrong: let the history end in y0.",
    )
