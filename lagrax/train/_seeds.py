"""Several models as one: the arrays of equal models stacked along a leading seed axis."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree


def stack(models: Sequence[PyTree]) -> PyTree:
    """One model out of several of the same structure and shapes: every array gets a leading axis, one entry per model.

    Everything that is not an array has to be the same in all of them. Differentiable.
    """
    parts = [eqx.partition(model, eqx.is_array) for model in models]
    if not parts:
        raise ValueError("got no models, expected at least one: stack([model])")
    arrays, rests = zip(*parts, strict=True)
    same = all(eqx.tree_equal(rest, rests[0]) is True for rest in rests)
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(part)] for part in arrays]
    if not same or any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "the models differ in structure, shapes or settings, expected equal ones with other numbers in their arrays: "
            "make all of them in the same way"
        )
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), rests[0])


def unstack(model: PyTree, seed: int) -> PyTree:
    """The model of one seed out of a stacked one: entry `seed` of the leading axis of every array."""
    return jax.tree.map(lambda leaf: leaf[seed] if eqx.is_array(leaf) else leaf, model)


def over_seeds(function: Callable, *mapped: bool, in_turn: bool) -> Callable:
    """`function` of arrays, mapped over the seed axis of the arguments that are `mapped`: as one batch, or one seed after
    the other."""
    if not in_turn:
        return jax.vmap(function, in_axes=tuple(0 if has else None for has in mapped))

    def run(*args):
        def one(own):
            own = iter(own)
            return function(*(next(own) if has else arg for arg, has in zip(args, mapped, strict=True)))

        return lax.map(one, [arg for arg, has in zip(args, mapped, strict=True) if has])

    return run
