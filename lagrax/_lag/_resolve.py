"""From what a user wrote among the delays to the kinds that the solver knows."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from ._base import AbstractLag
from ._constant import Constant
from ._derivative import Derivative
from ._each import Each
from ._integral import Integral
from ._moving import Moving


class Lag(eqx.Module):
    """A delay with options.

    **Arguments:**

    - `delay`: a number, a function `(t, y, args)` that returns the delay, or a [`lagrax.At`][].
    - `minimum`: a promise that the delay is never shorter. Steps are then at most this long and never look into themselves,
      which spares the iteration that this takes. A delay that breaks the promise ends the solve with `bad_delay`.
    - `overlap`: whether steps may be longer than the delay. By default functions overlap unless they have a minimum, and
      numbers do not: for a delay that is tiny beside the time over which the solution changes, `overlap=True` saves steps.
    - `track`: whether steps end where this delay looks at a kink of the solution (True). False is for those without kinks.

    ```python
    delays = {"fixed": 1.0, "slow": lagrax.Lag(lambda t, y, args: 2 + jnp.sin(t), minimum=1.0)}
    ```
    """

    delay: Any
    minimum: Any = None
    overlap: bool | None = eqx.field(static=True, default=None)
    track: bool = eqx.field(static=True, default=True)


def resolve(delays: PyTree) -> PyTree[AbstractLag | Integral]:
    """`delays` with every leaf replaced by its kind."""
    return jax.tree.map(_kind, _with_values(delays), is_leaf=_is_leaf)


def is_lag(x: Any) -> bool:
    return isinstance(x, AbstractLag | Integral)


def are_planned(lags: list[AbstractLag]) -> bool:
    """Whether all are constants that steps are never longer than, or derivatives there: what a step will see is then known
    before it starts."""
    kinds = (Constant, Derivative)
    return all(type(lag) in kinds and _is_plain(lag.inner) for lag in lags)


def _is_plain(lag: AbstractLag) -> bool:
    return type(lag) is Constant and not lag.overlaps and lag.track


def is_value(x: Any) -> bool:
    """Whether x is a module called without arguments for its value, a learnable constant."""
    return isinstance(x, eqx.Module) and callable(x) and _takes(x, 0) and not _takes(x, 3)


def _with_values(delays: PyTree) -> PyTree:
    """With every learnable constant replaced by its value, which may be several delays."""

    def value(leaf):
        if is_value(leaf):
            return leaf()
        if isinstance(leaf, Lag):
            return jax.tree.map(lambda delay: dataclasses.replace(leaf, delay=delay), value(leaf.delay), is_leaf=_is_leaf)
        if isinstance(leaf, Derivative):
            return jax.tree.map(lambda of: dataclasses.replace(leaf, of=of), value(leaf.of), is_leaf=_is_leaf)
        if isinstance(leaf, Each) and is_value(leaf.delays):
            return dataclasses.replace(leaf, delays=leaf.delays())
        if isinstance(leaf, Integral):
            bounds = [bound() if is_value(bound) else bound for bound in (leaf.lower, leaf.upper)]
            return dataclasses.replace(leaf, lower=bounds[0], upper=bounds[1])
        return leaf

    return jax.tree.map(value, delays, is_leaf=_is_leaf)


def _is_leaf(x: Any) -> bool:
    return isinstance(x, Lag | AbstractLag | Integral) or (isinstance(x, eqx.Module) and callable(x))


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, Derivative):
        return Derivative(_with_options(_kind(leaf.of), leaf))
    if isinstance(leaf, AbstractLag | Integral):
        return leaf
    if isinstance(leaf, Lag):
        return _with_options(_kind(leaf.delay), leaf)
    return Moving(leaf) if callable(leaf) else Constant(leaf)


def _with_options(lag: Any, given: Any) -> AbstractLag:
    """A delay with the options that are given, where they are; others stay as they were."""
    if isinstance(lag, Integral):
        raise ValueError(
            f"got lagrax.{type(given).__name__} around an Integral, expected a delay inside it: an integral has no options, "
            "and its derivative is to be had from the vector field; use the Integral itself"
        )
    if isinstance(lag, Derivative):
        return Derivative(_with_options(lag.of, given))
    minimum = lag.minimum if given.minimum is None else given.minimum
    overlap = lag.overlap if given.overlap is None else given.overlap
    return dataclasses.replace(lag, minimum=minimum, overlap=overlap, track=lag.track and given.track)


def _takes(function: Callable, count: int) -> bool:
    """Whether a callable can be called with so many positional arguments, as far as it says."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # it does not say
        return count == 3
    return True
