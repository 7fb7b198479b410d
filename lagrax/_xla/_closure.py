"""A function with what it closes over among its leaves, so that a custom derivative rule sees the traced values in it."""

import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jaxtyping import PyTreeDef


def with_closure(function: Callable, *example: Any) -> Callable:
    """`function`, to be called with arguments shaped like the example.

    What `equinox.filter_closure_convert` does without its check of arguments: inside a `shard_map` it tells an array made
    outside from the same array made inside.
    """
    if isinstance(function, types.FunctionType) and _holds_nothing(function):
        return function
    # Without the weak types of Python's numbers: a state of float64 stays one.
    strict = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if eqx.is_array(x) else x
    closed, shapes, static = eqx.filter_make_jaxpr(function)(*jax.tree.map(strict, example))
    leaves, structure = jax.tree.flatten(static)
    return Closure(closed.jaxpr, closed.consts, jax.tree.structure(shapes), (tuple(leaves), structure))


def _holds_nothing(function: types.FunctionType) -> bool:
    """Whether a function closes over nothing, and has no defaults that might hold a traced value, as in
    `[lambda t, y, args, x=x: x for x in delays]`."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return function.__closure__ is None and all(isinstance(x, int | float | str | None) for x in defaults)


class Closure(eqx.Module):
    """A traced function and the values it closes over."""

    jaxpr: Jaxpr
    consts: list
    structure: PyTreeDef = eqx.field(static=True)
    static: tuple[tuple, PyTreeDef] = eqx.field(static=True)
    """What it returns that is not an array, flattened."""

    def __call__(self, *args):
        inputs = jax.tree.leaves(eqx.filter(args, eqx.is_array))
        outputs = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, self.consts))(*inputs)
        leaves, structure = self.static
        return eqx.combine(jax.tree.unflatten(self.structure, outputs), jax.tree.unflatten(structure, leaves))
