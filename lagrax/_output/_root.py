"""Where a function of time passes zero between two times, by the root finder that a user chose, and its derivative.

The finder is asked for the number only. Optimistix's own derivative raises where anything that it meets is not finite,
whatever `throw` says, and inside a program that is split over devices an error ends the process.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float

from .._xla._compat import while_loop


class Bracket(eqx.Module):
    """Two times, the values there, and whether they have different signs: if not, there is nothing to find."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]
    before: Float[Array, ""]
    after: Float[Array, ""]

    @property
    def holds(self) -> Bool[Array, ""]:
        return jnp.sign(self.before) * jnp.sign(self.after) < 0


class _NumberOnly(optx.AbstractAdjoint):
    """The search without a derivative."""

    def apply(self, primal_fn, rewrite_fn, inputs, tags):
        return primal_fn((*inputs, functools.partial(while_loop, kind="lax")))


@eqx.filter_custom_jvp
def find_root(function: Callable, bracket: Bracket, finder: Any) -> tuple[Float[Array, ""], optx.RESULTS]:
    """(The time, how the search ended.) Differentiable in what the function closes over, which is among its leaves
    (`_xla/_closure.py`). Of a bracket that holds nothing the time means nothing."""
    holds, lower, upper = bracket.holds, bracket.lower, bracket.upper
    bounds = {"lower": jnp.where(holds, lower, 0), "upper": jnp.where(holds, upper, 1)}

    def residual(t, _):
        value = function(t)
        # The ends have the signs that were seen there, though rounding may differ here; slopes as they are.
        moved = value - jax.lax.stop_gradient(value)
        value = jnp.where(t == lower, bracket.before + moved, jnp.where(t == upper, bracket.after + moved, value))
        # A finder is given something to find in any case.
        return jnp.where(holds, value, t - 0.5)

    # Where a line between both ends crosses zero: from the end itself, Newton's method fails if the slope there is zero.
    share = bracket.before / jnp.where(holds, bracket.before - bracket.after, 1)
    guess = jnp.where(holds, lower + share * (upper - lower), 0.5)
    found: optx.Solution = optx.root_find(residual, finder, guess, options=bounds, adjoint=_NumberOnly(), throw=False)
    return found.value, found.result


@find_root.def_jvp
def _find_root_jvp(primals, tangents):
    """The implicit function theorem: dt = -df / f'(t)."""
    function, bracket, finder = primals
    t, result = find_root(function, bracket, finder)
    moving = jax.tree.map(lambda x: x is not None, tangents[0], is_leaf=lambda x: x is None)
    variables, constants = eqx.partition(function, moving)
    _, slope = jax.jvp(function, (t,), (jnp.ones_like(t),))
    _, moved = jax.jvp(lambda variables: eqx.combine(variables, constants)(t), (variables,), (tangents[0],))
    # Nothing of a bracket that holds nothing depends on anything. Of a function without a slope, as a switch is, nobody
    # knows: NaN, and not the zero of a derivative that does not come to be.
    holds, flat = bracket.holds, slope == 0
    everything = sum(jnp.sum(dx.real) for dx in jax.tree.leaves(tangents[0]))
    unknown = jnp.where(flat, everything * jnp.where(flat, jnp.nan, 1), 0)
    dt = jnp.where(holds, unknown - moved / jnp.where(holds & ~flat, slope, 1), 0)
    return (t, result), (dt, jax.tree.map(lambda _: None, result))
