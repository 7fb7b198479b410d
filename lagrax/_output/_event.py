"""Stopping early: conditions watched while the solution advances, and the time at which one of them crosses zero."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from .._called import users_own
from .._past import row_start, state_at
from .._results import RESULTS
from .._xla._closure import with_closure
from ._root import Bracket, find_root


def event_values(conditions: PyTree, t, y: PyTree, args: PyTree) -> PyTree[Array]:
    """What the condition functions return now; each must be one boolean or one real number."""

    def value(condition):
        out = condition(t, y, args)
        if not eqx.is_array_like(out):
            raise ValueError(f"an event condition returned {out!r}, expected one boolean or one real number: return it")
        shape, dtype = jnp.shape(out), jnp.result_type(out)
        if shape != () or not (dtype == jnp.bool_ or jnp.issubdtype(dtype, jnp.floating)):
            raise ValueError(
                f"an event condition returned shape {shape} and dtype {dtype}, expected one boolean or one real number: "
                "reduce it to a scalar"
            )
        return jnp.asarray(out)

    return jax.tree.map(value, conditions, is_leaf=callable)


def triggered(old: PyTree[Array], new: PyTree[Array], directions: PyTree[Any]) -> PyTree[Bool[Array, ""]]:
    """Which condition became true or changed sign between two steps; the first only, if several did."""

    def crossed(direction, before, after):
        if after.dtype == jnp.bool_:
            return after
        # Starting at zero is no event, as in MATLAB: what starts on a surface is asked when it comes back.
        up, down = (before < 0) & (after >= 0), (before > 0) & (after <= 0)
        return up | down if direction is None else (up if direction else down)

    mask = jax.tree.map(crossed, directions, old, new, is_leaf=lambda x: x is None)
    leaves, structure = jax.tree.flatten(mask)
    first = [leaf & ~jnp.any(jnp.stack([jnp.array(False), *leaves[:i]])) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, first)


def stopped_by(values: PyTree[Array], mask: PyTree[Bool[Array, ""]]) -> RESULTS:
    """Whether an event of the mask stops the solve here, or a condition that is NaN, of which nobody knows."""
    unknown = [jnp.isnan(value) for value in jax.tree.leaves(values) if value.dtype != jnp.bool_]
    happened = jnp.any(jnp.stack([jnp.array(False), *jax.tree.leaves(mask)]))
    ended = RESULTS.where(happened, RESULTS.event_occurred, RESULTS.successful)
    return RESULTS.where(jnp.any(jnp.stack([jnp.array(False), *unknown])), RESULTS.bad_event, ended)


def locate_event(event: dfx.Event, problem, args, trajectory):
    """(t, y, result) at the root of the condition that stopped the solve, inside the last step; differentiable.

    Without a root finder, or when nothing crossed zero inside the step, its end.
    """
    t_end, y_end, result = trajectory.t_end, trajectory.y_end, trajectory.result
    if event.root_finder is None:
        return t_end, y_end, result
    row = trajectory.past.rows[jnp.maximum(trajectory.count - 1, 0)]
    lower, upper = row_start(row), t_end
    state = lambda t: state_at(row, t, problem.y0)
    mask = jax.tree.leaves(trajectory.event_mask)

    def condition(t):
        """The one that stopped the solve, if it is a number; else zero."""
        values = jax.tree.leaves(event_values(event.cond_fn, t, problem.unravel(state(t)), args))
        numbers = [(hit, value) for hit, value in zip(mask, values, strict=True) if value.dtype != jnp.bool_]
        return sum((jnp.where(hit, value.astype(t.dtype), 0) for hit, value in numbers), jnp.zeros_like(t))

    bracket = Bracket(*lax.stop_gradient((lower, upper, condition(lower), condition(upper))))
    crosses = (trajectory.count > 0) & bracket.holds
    t, search = find_root(with_closure(condition, upper), bracket, event.root_finder)
    result = RESULTS.where(crosses & (search != optx.RESULTS.successful), RESULTS.promote(search), result)
    t = jnp.where(crosses, t, t_end)
    return t, jnp.where(crosses, state(t), y_end), result


def convert_events(event: dfx.Event, t: Float[Array, ""], state: PyTree, args: PyTree) -> PyTree:
    """The conditions, with what they close over among their leaves."""
    with users_own("an event condition", "t, y, args", t, state, args):
        return jax.tree.map(lambda f: with_closure(f, t, state, args), event.cond_fn, is_leaf=callable)
