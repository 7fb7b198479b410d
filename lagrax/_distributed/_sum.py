"""Integrals over the past with a kernel of any kind: Gauss's rule in every step that they cover.

Steps end where the solution kinks, so the integrand is smooth inside each, and a few points keep the order of the method.
(Points fixed in the window are wrong by more than the tolerance as soon as a kink is inside it.) Steps are no longer than
the kernel can be integrated over with these points, and cover the window up to its ends: the first and the last are cut
there.

An integral looks at the ends of its window as a delay looks at one time, so breakpoints are found, and rows, as for
delays. Its share of the step that is being taken changes with every sweep and is computed apart.
"""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Inexact, PyTree

from .._lag import Integral
from .._problem import ravel
from .._xla._closure import with_closure
from ._expand import Bounds, WithIntegrals
from ._history import PANELS, Past, is_accurate, over_history

FINEST = 512
"""The largest number of parts of a window over which a kernel is tried to be integrated."""


class Sum(eqx.Module):
    """One integral: over the stretches between its `edges`, in order, which the problem's delays number `lags` look at."""

    edges: Float[Array, " edges"]
    kernel: Callable
    of: Callable
    lags: tuple[int, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    unravel: Callable = eqx.field(static=True)

    def over(
        self, t: Float[Array, ""], ends: tuple, states: Callable, args: PyTree, rule: Any, dtype
    ) -> Inexact[Array, " size"]:
        """∫ k(t - u) g(u, y(u), args) du between two times, with `states(u)` for y at the times u, flat and in `dtype`."""
        points, factors = (jnp.asarray(x, t.dtype) for x in rule)
        a, b = ends
        times = (a + b) / 2 + points * (b - a) / 2
        weights = jax.vmap(self.kernel)(t - times).astype(t.dtype) * factors * ((b - a) / 2)
        values = jax.vmap(lambda u, y: ravel(self.of(u, y, args), dtype))(times, states(times))
        return jnp.sum(weights[:, None].astype(dtype) * values, axis=0)

    def tree(self, flat: Inexact[Array, " size"]) -> PyTree:
        """The integral in the structure of `of`."""
        real = jnp.issubdtype(self.dtype, jnp.floating)
        return self.unravel((flat.real if real else flat).astype(self.dtype))

    @property
    def windows(self) -> list[tuple[Any, Any, int, int]]:
        """(The nearer edge, the further, and the delays that look at them) of each stretch."""
        pairs = zip(range(len(self.lags) - 1), self.lags[:-1], self.lags[1:], strict=True)
        return [(self.edges[i], self.edges[i + 1], near, far) for i, near, far in pairs]


def gauss_rule(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights on [-1, 1], for an error of one order more than a method of this order makes."""
    return np.polynomial.legendre.leggauss((order + 2) // 2)


class Sums(eqx.Module):
    """All integrals of a problem that are computed so."""

    parts: tuple[Sum, ...]
    longest_step: Float[Array, ""]
    """How long a step may be for their kernels to be integrated accurately over it."""
    at_start: Inexact[Array, " q"]
    """Their values at t0, one after another. (Not differentiable; only the choice of the first step reads them.)"""

    @property
    def size(self) -> int:
        return sum(one.size for one in self.parts)

    def trees(self, flat: Inexact[Array, " q"]) -> list[PyTree]:
        """The integrals, each in the structure of its `of`."""
        ends = np.cumsum([one.size for one in self.parts])[:-1]
        return [one.tree(x) for one, x in zip(self.parts, jnp.split(flat, ends), strict=True)]


def make_sums(
    field: WithIntegrals, indices: PyTree, past: Past, args: PyTree, order: int, tolerance: tuple[Any, Any], dtype
) -> tuple[Sums, Bool[Array, ""]]:
    """(The integrals that are not chains, whether their kernels and the history can be integrated accurately).

    `indices` are the numbers of the delays, in the structure of the delays; `dtype` is that of the flat state.
    """
    numbers = [bounds for lag, bounds in zip(field.lags, field.seen(indices), strict=True) if _is_sum(lag)]
    state = jax.tree.map(jnp.asarray, past.state(past.t0))
    parts = tuple(_make(*pair, past.t0, state, args) for pair in zip(field.sums, numbers, strict=True))
    longest, sound = resolution(parts, order, tolerance[0])
    starts, accurate = zip(*(_at_start(one, past, args, tolerance, dtype) for one in parts), strict=True)
    start = lax.stop_gradient(jnp.concatenate(starts))
    return Sums(parts, longest, start), sound & jnp.all(jnp.stack(accurate))


def _at_start(one: Sum, past: Past, args: PyTree, tolerance, dtype) -> tuple[Inexact[Array, " size"], Bool[Array, ""]]:
    """(The integral at t0, whether it is accurate)."""
    t0 = past.t0
    value = lambda u: ravel(one.of(u, jax.tree.map(jnp.asarray, past.state(u)), args), dtype)
    weights = lambda u: jnp.asarray(one.kernel(t0 - u), t0.dtype)[None]
    found = [over_history(weights, value, (t0 - far, t0 - near), past.breaks, PANELS) for near, far, _, _ in one.windows]
    total, error = (sum(x[i] for x in found) for i in (0, 1))
    return total[0], is_accurate(total, error, tolerance)


def _is_sum(lag: Any) -> bool:
    return isinstance(lag, Integral) and not lag.is_chain


def _make(integral: Integral, numbers: Bounds, t: Float[Array, ""], state: PyTree, args: PyTree) -> Sum:
    of = with_closure(lambda t, y, args: jax.tree.map(jnp.asarray, integral.value(t, y, args)), t, state, args)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: of(t, state, args)))
    with jax.numpy_dtype_promotion("standard"):
        flat, unravel = ravel_pytree(zeros)
    edges = (integral.lower, *integral.kinks, integral.upper)
    return Sum(
        edges=jnp.stack([jnp.asarray(edge, t.dtype) for edge in edges]),
        kernel=with_closure(lambda s: jnp.asarray(integral.kernel(s)), t),
        of=of,
        lags=(numbers.lower, *numbers.kinks, numbers.upper),
        size=flat.size,
        dtype=flat.dtype,
        unravel=unravel,
    )


def resolution(sums: tuple[Sum, ...], order: int, rtol: Any) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """(How long a step may be for all kernels to be integrated to a relative error of `rtol` over it, whether any may)."""
    lengths, sound = [], [jnp.array(True)]
    for one in sums:
        for near, far, _, _ in lax.stop_gradient(one.windows):
            parts, good = _parts(one.kernel, near, far, gauss_rule(order), rtol)
            lengths.append((far - near) / parts)
            sound.append(good)
    return lax.stop_gradient(jnp.min(jnp.stack(lengths))), jnp.all(jnp.stack(sound))


def _parts(kernel: Callable, near, far, rule, rtol) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """(Into how many parts a stretch is to be divided, whether that is enough): such that all finer divisions agree."""
    points, factors = (jnp.asarray(x, near.dtype) for x in rule)

    def integrals(parts: int) -> Float[Array, " parts"]:
        edges = near + (far - near) * jnp.linspace(0, 1, parts + 1, dtype=near.dtype)
        a, b = edges[:-1, None], edges[1:, None]
        s = (a + b) / 2 + points * (b - a) / 2
        values = jax.vmap(kernel)(s.reshape(-1)).astype(near.dtype).reshape(s.shape)
        return jnp.sum(values * factors * (b - a) / 2, axis=1)

    numbers = 2 ** np.arange(int(np.log2(FINEST)) + 1)
    found = [integrals(int(n)) for n in (*numbers, 2 * FINEST)]
    size = jnp.sum(jnp.abs(found[-1]))
    errors = [jnp.sum(jnp.abs(one - two.reshape(-1, 2).sum(axis=1))) for one, two in itertools.pairwise(found)]
    wrong = ~(jnp.stack(errors) <= rtol * size)
    last_wrong = jnp.max(jnp.where(wrong, np.arange(len(numbers), dtype=np.int32), -1))
    parts = jnp.asarray(numbers, near.dtype)[jnp.minimum(last_wrong + 1, len(numbers) - 1)]
    return parts, (last_wrong < len(numbers) - 1) & jnp.all(jnp.isfinite(found[-1]))
