"""A past that was observed: the initial function as a spline through samples."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._check import concrete
from ._delay import LearnableDelay


class SampledHistory(eqx.Module):
    """A cubic spline through samples of the past, to be used as the `history` of a solve; `history(t)` is a state.

    - `ts`: increasing times (n,), n ≥ 4; the last is usually the start of the solve.
    - `ys`: states at these times, (n, ...). NaN is a missing value, which a straight line through its neighbours in time
      replaces; the first and the last value of a component have to be there.

    The spline has continuous second derivatives; its end pieces are parabolas. It knows nothing before its first sample, and
    says so: there `history(t)` is NaN, and `check(delays)` raises if a delay may reach that far. Differentiable in `ts`,
    `ys` and t; `jax.vmap` makes one for each window of a batch.
    """

    ts: Float[Array, " n"]
    coefficients: tuple[Float[Array, "k ..."], ...]

    def __init__(self, ts: Any, ys: Any):
        ts, ys = jnp.asarray(ts, float), jnp.asarray(ys, float)
        if ts.ndim != 1 or ys.shape[:1] != ts.shape or ts.shape[0] < 4:
            raise ValueError(
                f"got times of shape {ts.shape} and samples of shape {ys.shape}, expected (n,) and (n, ...) with n >= 4: "
                "give at least four samples of the past"
            )
        _check_ends(ts, ys)
        flat = dfx.linear_interpolation(ts, ys.reshape(ts.shape[0], -1))
        pieces = _spline(ts, flat)
        self.ts = ts
        self.coefficients = tuple(piece.reshape(-1, *ys.shape[1:]) for piece in pieces)

    def __call__(self, t: Float[Array, ""] | float) -> Float[Array, "..."]:
        t = jnp.asarray(t, self.ts.dtype)
        piece = jnp.clip(jnp.searchsorted(self.ts, t, side="right", method="compare_all") - 1, 0, self.ts.shape[0] - 2)
        a, b, c, d = (coefficient[piece] for coefficient in self.coefficients)
        s = t - self.ts[piece]
        value = a + s * (b + s * (c + s * d))
        # A rounding error before the first sample is still the first sample.
        slack = 1e-5 * (self.ts[-1] - self.ts[0])
        return jnp.where(t < self.ts[0] - slack, jnp.nan, value)

    def check(self, delays: PyTree) -> None:
        """Raises a `ValueError` if one of these delays, or the upper bound of a learnable one, is longer than the record."""
        length = concrete(self.ts[-1] - self.ts[0])
        is_leaf = lambda leaf: isinstance(leaf, LearnableDelay)
        for leaf in jax.tree.leaves(delays, is_leaf=is_leaf):
            longest = leaf.upper if is_leaf(leaf) else concrete(leaf) if eqx.is_array_like(leaf) else None
            if longest is not None and length is not None and float(longest) > float(length) * (1 + 1e-5):
                raise ValueError(
                    f"a delay may be {float(longest):g}, and the samples of the past are {float(length):g} long, expected "
                    "no longer a delay: give more samples, or lower its bound"
                )


def read_samples(t: Float[Array, ""] | float, past: SampledHistory) -> Float[Array, "..."]:
    """The `history` of a [`lagrax.nn.NeuralDDE`][] that is called with a `SampledHistory`."""
    return past(t)


def _check_ends(ts: Array, ys: Array) -> None:
    times, states = concrete(ts), concrete(ys)
    if times is not None and not bool((jnp.diff(times) > 0).all()):
        raise ValueError("the times of the samples do not increase, expected them to: sort them and drop duplicates")
    if states is not None and bool(jnp.isnan(states[jnp.array([0, -1])]).any()):
        raise ValueError(
            "the first or last sample of the past is missing, expected values at both ends: cut the record where both are"
        )


def _spline(ts: Float[Array, " n"], ys: Float[Array, "n d"]) -> tuple[Float[Array, "k d"], ...]:
    """Coefficients in powers of t − tₖ on each of the n − 1 pieces."""
    h = jnp.diff(ts)
    slope = jnp.diff(ys, axis=0) / h[:, None]
    # Second derivatives m: hₖ₋₁ mₖ₋₁ + 2(hₖ₋₁ + hₖ) mₖ + hₖ mₖ₊₁ = 6 (slopeₖ − slopeₖ₋₁), and equal ones at each end.
    one, zero = jnp.ones(1, ts.dtype), jnp.zeros(1, ts.dtype)
    diagonal = jnp.concatenate([one, 2 * (h[:-1] + h[1:]), one])
    lower = jnp.concatenate([zero, h[:-1], -one])
    upper = jnp.concatenate([-one, h[1:], zero])
    edge = jnp.zeros((1, ys.shape[1]), ys.dtype)
    right = jnp.concatenate([edge, 6 * jnp.diff(slope, axis=0), edge])
    m = _tridiagonal(lower, diagonal, upper, right)
    width = h[:, None]
    return ys[:-1], slope - width * (2 * m[:-1] + m[1:]) / 6, m[:-1] / 2, jnp.diff(m, axis=0) / (6 * width)


def _tridiagonal(lower: Array, diagonal: Array, upper: Array, right: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Thomas's algorithm. By hand, because LAPACK's is called from inside a batched loop for each of its members."""

    def down(before, row):
        ratio, value = before
        below, centre, above, given = row
        pivot = centre - below * ratio
        new = (above / pivot, (given - below * value) / pivot)
        return new, new

    def up(after, row):
        ratio, value = row
        new = value - ratio * after
        return new, new

    first = (jnp.zeros((), right.dtype), jnp.zeros(right.shape[1:], right.dtype))
    _, rows = lax.scan(down, first, (lower, diagonal, upper, right))
    return lax.scan(up, first[1], rows, reverse=True)[1]
