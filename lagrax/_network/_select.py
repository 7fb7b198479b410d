"""Which components of the state an array of delays reads, and delays that are few written as so many numbers."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, PyTreeDef

from .._called import users_own
from .._lag import Constant, Each, Elements, is_lag
from .._term import DelayTerm

FEW = 16
"""Up to so many elements are solved as delays of their own, each with its breakpoints."""


def prepared(term: DelayTerm, state: PyTree[Array]) -> DelayTerm:
    """The term with every `Each` as the solver knows it: as numbers if there are few elements, else as `Elements`."""
    leaves = jax.tree_util.tree_leaves_with_path(term.lags(), is_leaf=is_lag)
    if not any(isinstance(lag, Each) for _, lag in leaves):
        return term
    lags = [_elements(f"delays{jax.tree_util.keystr(path)}", lag, state) for path, lag in leaves]
    structure = jax.tree.structure(term.lags(), is_leaf=is_lag)
    few = sum(lag.senders.size for lag in lags if isinstance(lag, Elements)) <= FEW
    if few:
        functions = tuple(lag.of if isinstance(lag, Each) else None for _, lag in leaves)
        numbers = [_numbers(lag) if isinstance(lag, Elements) else lag for lag in lags]
        shapes = tuple(lag.shape if isinstance(lag, Elements) else None for lag in lags)
        return DelayTerm(FromNumbers(term.vector_field, functions, shapes, structure), numbers)
    for (path, given), lag in zip(leaves, lags, strict=True):
        if not isinstance(lag, Elements) and not (type(lag) is Constant and lag.track):
            raise ValueError(
                f"delays{jax.tree_util.keystr(path)} is a {type(given).__name__} beside a lagrax.Each of more than {FEW} "
                "elements, expected numbers alone beside it: make what it reads a state of its own, or use fewer elements"
            )
    return DelayTerm(term.vector_field, jax.tree.unflatten(structure, lags))


class FromNumbers(eqx.Module):
    """A vector field that takes the elements of its arrays of delays from so many whole states."""

    vector_field: Callable
    functions: tuple[Callable | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...] = eqx.field(static=True)
    structure: PyTreeDef = eqx.field(static=True)

    def __call__(self, t, y, delayed, args):
        leaves = []
        for states, of, shape in zip(delayed, self.functions, self.shapes, strict=True):
            if shape is None:
                leaves.append(states)
                continue
            select = (lambda y: y) if of is None else of
            element = lambda e, state, of=select, shape=shape: jnp.broadcast_to(of(state), shape).reshape(-1)[e]
            leaves.append(jnp.stack([element(e, state) for e, state in enumerate(states)]).reshape(shape))
        return self.vector_field(t, y, jax.tree.unflatten(self.structure, leaves), args)


def _numbers(lag: Elements) -> tuple[Constant, ...]:
    delays = jnp.broadcast_to(jnp.asarray(lag.delays), lag.shape).reshape(-1)
    return tuple(Constant(delay, overlap=lag.overlap, track=lag.track) for delay in jnp.unstack(delays))


def _elements(name: str, lag: Any, state: PyTree[Array]) -> Any:
    if not isinstance(lag, Each):
        return lag
    places, like, valid = _places(name, lag, state)
    shape = _shape(name, jnp.shape(lag.delays), places.shape)
    delays = jnp.asarray(lag.delays)
    return Elements(
        delays=delays,
        senders=jnp.broadcast_to(places, shape).reshape(-1),
        valid=valid,
        shape=shape,
        dtype=like.dtype,
        overlap=lag.overlaps,
        track=lag.track,
    )


def _shape(name: str, delays: tuple[int, ...], selected: tuple[int, ...]) -> tuple[int, ...]:
    try:
        shape = np.broadcast_shapes(delays, selected)
    except ValueError:
        raise ValueError(
            f"{name} has delays of shape {delays}, expected one that broadcasts against what `of` selects, of shape "
            f"{selected}: element [i, j] of the delays goes with element [j] of it"
        ) from None
    if math.prod(shape) == 0:
        raise ValueError(f"{name} has no elements, expected at least one: leave it out")
    return shape


def _places(name: str, lag: Each, state: PyTree[Array]):
    """(The place in the flat state of everything that `of` selects, what it gives for a state, whether it does select)."""
    leaves, structure = jax.tree.flatten(state)
    if lag.of is None and len(leaves) != 1:
        raise ValueError(
            f"{name} has no `of` and the state has {len(leaves)} arrays, expected a function that selects from them: pass "
            "of=lambda y: y[...]"
        )
    of: Callable = (lambda y: y) if lag.of is None else lag.of
    if lag.of is None:
        state, of = leaves[0], (lambda y: y)
        structure = jax.tree.structure(leaves[0])
    splits = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    with users_own(f"`of` of {name}", "y", state):
        like = jax.eval_shape(of, state)
    if not hasattr(like, "shape"):
        raise ValueError(
            f"{name} has an `of` that returned {jax.tree.structure(like)}, expected one array of components of the state: "
            "select from one of its arrays, or concatenate them"
        )

    def filled(flat: np.ndarray, of_dtype: Callable) -> PyTree:
        parts = zip(np.split(flat, splits[:-1]), leaves, strict=True)
        return jax.tree.unflatten(structure, [jnp.asarray(of_dtype(part, leaf).reshape(leaf.shape)) for part, leaf in parts])

    computes = ValueError(
        f"{name} has an `of` that computes, expected one that selects components of the state, as y[senders] or y['rate']: "
        "compute with what it gives in the vector field"
    )
    numbers, probe = np.arange(splits[-1], dtype=np.int32), np.random.default_rng(0).standard_normal((2, splits[-1]))
    # Numbers that no arithmetic leaves as they are, of the state's own kinds.
    kind = lambda part, leaf: (part if jnp.iscomplexobj(leaf) else part.real).astype(leaf.dtype)
    with jax.ensure_compile_time_eval(), jax.numpy_dtype_promotion("standard"):
        try:
            places = jnp.asarray(of(filled(numbers, lambda part, leaf: part)))
        except (TypeError, ValueError):  # as of a function that is only defined for floats
            raise computes from None
        if places.dtype != np.int32 or places.shape != like.shape:
            raise computes
        example = filled(probe[0] + 1j * probe[1], kind)
        flat = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(example)])
        within = (places >= 0) & (places < splits[-1])
        valid = jnp.all(within & (of(example) == flat[jnp.where(within, places, 0)]))
    if not isinstance(valid, jax.core.Tracer) and not valid:
        raise computes
    return places, like, valid
