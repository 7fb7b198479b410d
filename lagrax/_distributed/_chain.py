"""Integrals as differential equations of their own: at t0 they are integrals of the history."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._lag import Integral
from ._expand import Bounds, WithIntegrals
from ._history import MORE_PANELS, PANELS, Past, is_accurate, over_history


def first_chains(
    field: WithIntegrals, delays: PyTree, past: Past, args: PyTree, tolerance: tuple[Any, Any]
) -> tuple[tuple[PyTree, ...], Bool[Array, ""]]:
    """(The chains at t0, whether all of them are accurate). Differentiable in everything but the tolerance."""
    pairs = zip(field.lags, field.seen(delays), strict=True)
    found = [_first(lag, seen, past, args, tolerance) for lag, seen in pairs if isinstance(lag, Integral) and lag.is_chain]
    chains, accurate = zip(*found, strict=True)
    return chains, jnp.all(jnp.stack(accurate))


def _first(integral: Integral, seen: Bounds, past: Past, args: PyTree, tolerance) -> tuple[PyTree, Bool[Array, ""]]:
    t0 = past.t0
    kernel: Any = integral.kernel
    length = lambda s: jnp.asarray(s, t0.dtype)
    lower = length(0.0 if seen.lower is None else integral.lower)
    upper = length(jnp.inf if seen.upper is None else integral.upper)
    decays = kernel.reach() is not None
    # Beyond its reach a kernel is negligible, and so must be what lies there of the history, weighted with it.
    far = lower + length(kernel.reach()) if decays else upper
    cut = far < upper
    value = lambda u: jax.tree.map(jnp.asarray, integral.value(u, past.state(u), args))
    total, error, first = over_history(
        lambda u: kernel.weights(t0 - u),
        value,
        (t0 - jnp.where(cut, far, upper), t0 - lower),
        past.breaks,
        MORE_PANELS if decays else PANELS,
    )
    return total, is_accurate(total, error, tolerance) & (~cut | is_accurate(total, first, tolerance))
