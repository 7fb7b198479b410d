"""What the stages of a step see of the past: for every element the row that holds its time, and one component of it.

Time only moves forwards, and so do the lookups: each search starts at the row that the last one ended in, for all elements
at once. On the way back they move backwards, and are found again: to remember them would take a number for each
element and stage.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact, Int

from .._method import Method, node_times
from .._problem import Problem
from ._memory import Memory, polynomial


class Lookup(eqx.Module):
    """Which rows the elements read at the nodes of a step, and where in them."""

    links: Int[Array, "nodes e"]
    theta: Float[Array, "nodes e"]


def query_times(problem: Problem, method: Method, t, t_end, skip: int = 0) -> Float[Array, "nodes e"]:
    """The times that the elements look at from the nodes of a step, but for the first `skip` of them."""
    delays = problem.network.delays(problem.lags, problem.y0.size, t.dtype)
    return node_times(method, t, t_end)[skip:, None] - delays[None]


def look(memory: Memory, links: Int[Array, "nodes e"], times: Float[Array, "nodes e"]) -> Lookup:
    # Links are found in loops of their own; the barrier keeps XLA from computing them again for each of their uses.
    links = lax.optimization_barrier(links)
    intervals = memory.intervals(links)
    return Lookup(links, (times - intervals[..., 0]) * intervals[..., 1])


def see(memory: Memory, lookup: Lookup, senders: Int[Array, " e"]) -> Inexact[Array, "nodes e"]:
    """The components that were looked up."""
    return polynomial(memory.coefficients(lookup.links, senders), lookup.theta)


def hunt_forwards(starts: Float[Array, " starts"], guesses: Int[Array, " e"], times: Float[Array, "nodes e"]):
    """The row that each lookup reads, the last that starts no later than its time; `guesses` are not after any of them."""

    def found(guess, time):
        def step(state):
            number, _ = state
            ahead = _start(starts, number + 1) <= time
            return number + ahead.astype(jnp.int32), jnp.any(ahead)

        return lax.while_loop(lambda state: state[1], step, (guess, jnp.array(True)))[0]

    links = []
    for time in jnp.unstack(lax.stop_gradient(times)):
        guesses = found(guesses, time)
        links.append(guesses)
    return jnp.stack(links)


def hunt_backwards(starts: Float[Array, " starts"], guesses: Int[Array, " e"], times: Float[Array, "nodes e"], last):
    """The same from guesses that are not before any of them, and never after row `last`."""

    def found(guess, time):
        def step(state):
            number, _ = state
            behind = _start(starts, number) > time
            return number - behind.astype(jnp.int32), jnp.any(behind)

        return lax.while_loop(lambda state: state[1], step, (guess, jnp.array(True)))[0]

    links, guesses = [], jnp.minimum(guesses, last)
    for time in jnp.unstack(lax.stop_gradient(times))[::-1]:
        guesses = found(guesses, time)
        links.append(guesses)
    return jnp.stack(links[::-1])


def seat(starts: Float[Array, " starts"], times: Float[Array, " e"]) -> Int[Array, " e"]:
    """The rows that hold these times, by bisection."""
    index = jnp.searchsorted(starts, lax.stop_gradient(times), side="right").astype(jnp.int32) - 1
    return jnp.maximum(index, 0)


def _start(starts: Float[Array, " starts"], numbers: Int[Array, " e"]) -> Float[Array, " e"]:
    return starts.at[numbers].get(mode="promise_in_bounds", wrap_negative_indices=False)
