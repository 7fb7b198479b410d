"""Integrals over the past with a kernel of any kind: Gauss's rule in every step that they cover.

Steps end where the solution kinks, so the integrand is smooth inside each, and a few points keep the order of the method.
(Points fixed in the window are wrong by more than the tolerance as soon as a kink is inside it.) Steps are no longer than
the kernel can be integrated over with these points, and cover the window up to its ends: the first and the last are cut
there.

An integral looks at the ends of its window as a delay looks at one time, so breakpoints are found, and rows, as for
delays. Its share of the step that is being taken changes with every sweep and is computed apart.
"""

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

_COUNTS = 2 ** np.arange(int(np.log2(FINEST)) + 2)
_HALVED = (
    np.concatenate([np.arange(count) / count for count in _COUNTS]),
    np.concatenate([np.full(count, 1 / count) for count in _COUNTS]),
)
"""Starts and lengths of the parts of [0, 1], of all divisions into 1, 2, 4, … parts, one after the other."""


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
    longest_part: Float[Array, ""]
    """How long a part of the history may be."""
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
    # Half of what either of the two factors allows, for the sake of their product.
    smooth = jnp.min(jnp.stack([_smooth_part(one, past, args, tolerance, dtype) for one in parts]))
    part = lax.stop_gradient(jnp.minimum(longest, smooth) / 2)
    return Sums(parts, longest, part, start), sound & jnp.all(jnp.stack(accurate))


def _smooth_part(one: Sum, past: Past, args: PyTree, tolerance, dtype) -> Float[Array, ""]:
    """How long a part of the history may be for what is integrated of it, without the kernel. Of all that will be seen: up
    to t0, though at t0 the window may end before."""
    t0, far = past.t0, jnp.max(one.edges)
    value = lambda u: ravel(one.of(u, jax.tree.map(jnp.asarray, past.state(u)), args), dtype)
    counts = [2**k for k in range(int(np.log2(PANELS)) + 1)]
    found = [over_history(lambda u: jnp.ones_like(u)[None], value, (t0 - far, t0), past.breaks, n)[:2] for n in counts]
    total, _ = found[-1]
    close = jnp.stack([is_accurate(total, error + jnp.abs(part - total), tolerance) for part, error in found])
    last_wrong = jnp.max(jnp.where(close, -1, np.arange(len(counts), dtype=np.int32)))
    return far / 2 ** jnp.minimum(last_wrong + 1, len(counts) - 1).astype(far.dtype)


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
    """(Into how many parts a stretch is to be divided, whether that is enough): such that all finer divisions agree.

    All divisions at once, the whole first, then its halves, then theirs: part j consists of parts 2 j + 1 and 2 j + 2.
    """
    starts, lengths = (jnp.asarray(x, near.dtype) for x in _HALVED)
    points, factors = (jnp.asarray(x, near.dtype) for x in rule)
    s = near + (far - near) * (starts[:, None] + lengths[:, None] * (points + 1) / 2)
    values = jax.vmap(kernel)(s.reshape(-1)).astype(near.dtype).reshape(s.shape)
    integrals = jnp.sum(values * factors, axis=1) * lengths * (far - near) / 2
    apart = jnp.abs(integrals[: -2 * FINEST] - jnp.sum(integrals[1:].reshape(-1, 2), axis=1))
    errors = jnp.stack([jnp.sum(division) for division in jnp.split(apart, _COUNTS[1:-1] - 1)])
    finest = integrals[-2 * FINEST :]
    wrong = ~(errors <= rtol * jnp.sum(jnp.abs(finest)))
    last_wrong = jnp.max(jnp.where(wrong, np.arange(len(errors), dtype=np.int32), -1))
    parts = 2 ** jnp.minimum(last_wrong + 1, len(errors) - 1).astype(near.dtype)
    return parts, (last_wrong < len(errors) - 1) & jnp.all(jnp.isfinite(finest))
