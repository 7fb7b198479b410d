"""One vector field until time zero, another from there on."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._parameters import Driven, TimeDependentParameters, detach, is_driven

HANDOVER = 0.0
"""When one field takes over from the other."""


class Handover(eqx.Module):
    """`before(t, y, None, args)` up to time `HANDOVER`, then `after(t, y, delayed, args)`.

    If the parameters of one of them depend on time, states are `Driven(h, (w_before, w_after))`, and those of the other
    stand still meanwhile.
    """

    before: Callable
    after: Callable

    def attach(self, h: PyTree) -> PyTree:
        """The state at the start."""
        fields = (self.before, self.after)
        w = tuple(f.initial_parameters() if isinstance(f, TimeDependentParameters) else None for f in fields)
        return h if w == (None, None) else Driven(h, w)

    def __call__(self, t: Float[Array, ""], y: PyTree, delayed: PyTree, args: Any) -> PyTree:
        # A conditional and not a selection: only one of the networks is evaluated (unless under `vmap`).
        return lax.cond(t < HANDOVER, lambda: self._slope(0, t, y, None, args), lambda: self._slope(1, t, y, delayed, args))

    def _slope(self, which: int, t: Float[Array, ""], y: PyTree, delayed: PyTree, args: Any) -> PyTree:
        field = (self.before, self.after)[which]
        if not is_driven(y):
            return field(t, y, delayed, args)
        own = lambda state: state.h if state.w[which] is None else Driven(state.h, state.w[which])
        slope = field(t, own(y), jax.tree.map(own, delayed, is_leaf=is_driven), args)
        w = [jax.tree.map(jnp.zeros_like, still) for still in y.w]
        if is_driven(slope):
            w[which] = slope.w
        return Driven(detach(slope), tuple(w))
