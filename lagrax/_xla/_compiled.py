"""One compiled program where a user computes without `jit`, instead of some fifty small ones."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp


def compiled(function: Callable) -> Callable:
    """`function`, compiled unless a `jit` around the call compiles it anyway.

    A second `jit` inside that one would gain nothing, and have a solve traced without its derivative before it is traced
    with it.
    """
    jitted = eqx.filter_jit(function)
    return lambda *arguments: (function if _is_compiling() else jitted)(*arguments)


def _is_compiling() -> bool:
    """Whether a `jit` around this is tracing: then what is made of nothing is a tracer too."""
    return isinstance(jnp.zeros(()), jax.core.Tracer)
