"""A solve whose state has integrals over its past beside it: what goes in, and what the user sees."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._check import check_integrals, check_vector_field
from .._lag import is_lag
from ._chain import first_chains
from ._expand import WithIntegrals
from ._history import Past, tolerance_of
from ._sum import Sums, make_sums


class OfState(eqx.Module):
    """A function `(t, y, args)` of the user's state as one of the state with its chains."""

    function: Callable

    def __call__(self, t, state, args, **kwargs):
        return self.function(t, state[0], args, **kwargs)


class PaddedHistory(eqx.Module):
    """A history with nothing for the chains, which nobody looks back at."""

    past: Callable
    nothing: PyTree[Array]

    def __call__(self, t):
        return self.past(t), self.nothing


def of_states(saveat: dfx.SaveAt, event: dfx.Event | None) -> tuple[dfx.SaveAt, dfx.Event | None]:
    """What is to be saved, and the event, as functions of the state with its chains."""
    is_sub = lambda x: isinstance(x, dfx.SubSaveAt)
    wrapped = lambda sub: eqx.tree_at(lambda s: s.fn, sub, OfState(sub.fn)) if is_sub(sub) else sub
    saveat = eqx.tree_at(
        lambda s: s.subs, saveat, jax.tree.map(wrapped, saveat.subs, is_leaf=is_sub), is_leaf=lambda x: x is None
    )
    if event is not None:
        event = eqx.tree_at(lambda e: e.cond_fn, event, jax.tree.map(OfState, event.cond_fn, is_leaf=callable))
    return saveat, event


class Given(NamedTuple):
    """What a solve is given, as far as its integrals need it. `past` is None for a constant history."""

    delays: PyTree
    state: PyTree
    history: Any
    past: Callable | None
    jump_ts: Float[Array, " jumps"]
    t0: Float[Array, ""]
    args: PyTree
    solver: Any
    controller: Any


class Integrated(NamedTuple):
    """A solve with its integrals: the state at t0 with the chains, the history that goes with it, the sums if there are any,
    and whether the integrals of the history are accurate (None without integrals)."""

    state: PyTree
    history: Any
    sums: Sums | None
    sound: Bool[Array, ""] | None


def with_integrals(field: Callable, given: Given) -> Integrated:
    """What takes the place of the given state and history for `field`, that of a term that was expanded."""
    if not isinstance(field, WithIntegrals):
        return Integrated(given.state, given.history, None, None)
    state, history, t0, args = given.state, given.history, given.t0, given.args
    shapes = check_integrals(field.lags, t0, state, args)
    check_vector_field(field.field, t0, state, field.delayed(iter(shapes)), args)
    past = Past(given.past if given.past is not None else lambda t: history, given.jump_ts, t0)
    tolerance = tolerance_of(given.controller, t0)
    sums, sound = None, jnp.array(True)
    if field.sums:
        structure: Any = jax.tree.structure(given.delays, is_leaf=is_lag)
        indices = structure.unflatten(range(structure.num_leaves))
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.result_type(*jax.tree.leaves(state))
        sums, sound = make_sums(field, indices, past, args, given.solver.order(None), tolerance, dtype)
    if not field.chains:
        return Integrated(state, history, sums, sound)
    chains, accurate = first_chains(field, given.delays, past, args, tolerance)
    nothing = jax.tree.map(jnp.zeros_like, chains)
    if not field.looks_back:
        history = (state, chains)
    else:
        history = (history, nothing) if given.past is None else PaddedHistory(given.past, nothing)
    return Integrated((state, chains), history, sums, sound & accurate)
