"""An equation with integrals over its past, written as one without them: what is looked back at is their bounds."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._check import concrete
from .._lag import Constant, Integral, is_lag
from .._term import DelayTerm


class Bounds(NamedTuple):
    """What stands in the place of an integral among the delays: the times it looks at. None where there is nothing to look
    at, now (`lower` zero) and infinitely long ago (`upper`)."""

    lower: Any
    kinks: tuple
    upper: Any


def expand(term: DelayTerm, t0: Any, t1: Any) -> DelayTerm:
    """The term without integrals: the bounds among its delays, and a vector field of the state with its chains."""
    structure: Any
    lags, structure = jax.tree.flatten(term.lags(), is_leaf=is_lag)
    if not any(isinstance(lag, Integral) for lag in lags):
        return term
    bounds = [_bounds(lag) if isinstance(lag, Integral) else lag for lag in lags]
    field = WithIntegrals(
        field=term.vector_field,
        lags=tuple(lags),
        structure=structure,
        looks_back=bool(jax.tree.leaves(bounds, is_leaf=is_lag)),
    )
    # Without any delay left, one that is longer than the solve stands in: nothing ever looks back by it.
    never = 2 * (t1 - t0)
    delays = structure.unflatten(bounds) if field.looks_back else Constant(lax.stop_gradient(jnp.asarray(never, float)))
    return DelayTerm(field, delays)


def _bounds(integral: Integral) -> Bounds:
    near, far = concrete(integral.lower), concrete(integral.upper)
    from_now, endless = near is not None and bool(near == 0), far is not None and bool(np.isposinf(far))
    if integral.is_chain:
        lower = None if from_now else Constant(integral.lower)
        return Bounds(lower, (), None if endless else Constant(integral.upper))
    # Steps may be longer than a bound. What is looked at now has no breakpoints of its own.
    edges = [Constant(s, overlap=True) for s in (*integral.kinks, integral.upper)]
    return Bounds(Constant(integral.lower, overlap=True, track=not from_now), tuple(edges[:-1]), edges[-1])


class WithIntegrals(eqx.Module):
    """The vector field of the state, or of `(state, chains)` if any integral is a chain, as a function of what the delays
    and the bounds of the integrals look at; the sums, if there are any, come with that as a pair."""

    field: Callable
    lags: tuple
    """Delays and integrals as the user wrote them, flattened, and how."""
    structure: Any = eqx.field(static=True)
    looks_back: bool = eqx.field(static=True)
    """Whether anything but the present is looked at."""

    @property
    def chains(self) -> list[Integral]:
        return [lag for lag in self.lags if isinstance(lag, Integral) and lag.is_chain]

    @property
    def sums(self) -> list[Integral]:
        return [lag for lag in self.lags if isinstance(lag, Integral) and not lag.is_chain]

    def seen(self, past: PyTree) -> list[Any]:
        """What belongs to each of `lags`, of a tree with the structure of the delays of the expanded term."""
        return self.structure.flatten_up_to(past) if self.looks_back else [Bounds(None, (), None)] * len(self.lags)

    def delayed(self, values: Iterator[Any]) -> PyTree:
        """What the user's vector field gets, of what belongs to each of `lags`."""
        return self.structure.unflatten(list(values))

    def __call__(self, t: Float[Array, ""], state: PyTree, delayed: PyTree, args: PyTree) -> PyTree:
        y, chains = state if self.chains else (state, ())
        past, sums = delayed if self.sums else (delayed, ())
        next_chain, next_sum, slopes, values = iter(chains), iter(sums), [], []
        for lag, seen in zip(self.lags, self.seen(past), strict=True):
            if not isinstance(lag, Integral):
                values.append(seen[0] if self.chains else seen)
            elif lag.is_chain:
                chain = next(next_chain)
                values.append(jax.tree.map(lambda link: link[-1], chain))
                slopes.append(chain_slope(lag, t, y, seen, chain, args))
            else:
                values.append(next(next_sum))
        slope = self.field(t, y, self.delayed(iter(values)), args)
        return (slope, tuple(slopes)) if self.chains else slope


def chain_slope(integral: Integral, t: Float[Array, ""], y: PyTree, seen: Bounds, chain: PyTree, args: PyTree) -> PyTree:
    """J' = k(lower) g(t - lower) - k(upper) g(t - upper) + R J; a leaf of J has the m links as its first axis."""
    kernel: Any = integral.kernel

    def entering(s, state):
        s = jnp.asarray(s, t.dtype)
        weights = kernel.weights(s)
        return jax.tree.map(lambda x: _outer(weights, x), integral.value(t - s, state, args))

    slope = entering(0.0, y) if seen.lower is None else entering(integral.lower, seen.lower[0])
    if seen.upper is not None:
        slope = jax.tree.map(jnp.subtract, slope, entering(integral.upper, seen.upper[0]))
    rates = kernel.rates()
    if rates is None:
        return slope
    return jax.tree.map(lambda x, link: x + jnp.tensordot(jnp.asarray(rates, link.dtype), link, 1), slope, chain)


def _outer(weights: Float[Array, " m"], x: Array) -> Array:
    x = jnp.asarray(x)
    return weights.astype(x.dtype).reshape(-1, *[1] * x.ndim) * x
