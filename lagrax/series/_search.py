"""Looking for delays and parameters: many least-squares fits at once, all by one compiled program."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._equation import Bounds, Equation
from ._least_squares import minimise
from ._windows import Windows

LANES = 24
"""Fits in one call of the compiled program. A shorter list is filled up, so that nothing is compiled twice."""


@eqx.filter_jit
def _fit_lanes(windows: Windows, equation: Equation, bounds: Bounds, sd, theta, starts, weights, free, iterations):
    def one(bounds, theta, starts, weights, free):
        residuals = lambda theta, start, window: equation.residuals(bounds.values(theta), start, window, sd)
        return minimise(residuals, theta, starts, windows, weights, free, iterations)

    return jax.vmap(one)(bounds, theta, starts, weights, free)


@dataclasses.dataclass
class Fits:
    """Several fits: parameters in the units of the data (k, p), initial states (k, w, d), cost (k,)."""

    values: np.ndarray
    starts: np.ndarray
    cost: np.ndarray

    def best(self) -> int:
        return int(np.argmin(self.cost))

    def take(self, rows) -> "Fits":
        return Fits(self.values[rows], self.starts[rows], self.cost[rows])


@dataclasses.dataclass
class Search:
    """The windows, the equation, and how to measure; `fit` does the rest. `tell` is called with each finished share."""

    windows: Windows
    equation: Equation
    scale: np.ndarray  # of the parameters, delays first
    low: np.ndarray
    high: np.ndarray
    sd: np.ndarray
    tell: Callable[[float], None] = lambda share: None

    def fit(self, values, *, weights=None, held=(), starts=None, bounds=None, iterations: int = 40) -> Fits:
        """Fits from each row of `values` (k, p), with the parameters `held` at these rows' values.

        `weights` (k, w) of the windows; `starts` (k, w, d): initial states to begin with; `bounds`: (low, high), each (p,).
        """
        values = np.atleast_2d(values)
        count, p = values.shape
        low, high = (self.low, self.high) if bounds is None else bounds
        windows = len(self.windows.start)
        weights = np.ones((count, windows)) if weights is None else np.broadcast_to(weights, (count, windows))
        observed = np.asarray(self.windows.y[:, 0])
        starts = np.broadcast_to(observed if starts is None else starts, (count, *observed.shape))
        free = np.ones(p)
        free[list(held)] = 0.0
        found = []
        for first in range(0, count, LANES):
            rows = np.minimum(np.arange(first, first + LANES), count - 1)
            many = lambda x: jnp.asarray(np.tile(x, (LANES, 1)))
            limits = Bounds(many(low), many(high), many(self.scale))
            theta = jax.vmap(Bounds.coordinates)(limits, jnp.asarray(values[rows]))
            lanes = _fit_lanes(
                self.windows, self.equation, limits, jnp.asarray(self.sd), theta, jnp.asarray(starts[rows]),
                jnp.asarray(weights[rows]), many(free), jnp.asarray(iterations),
            )  # fmt: skip
            kept = min(LANES, count - first)
            ended = jax.vmap(Bounds.values)(limits, lanes.theta)
            found.append([np.asarray(x)[:kept] for x in (ended, lanes.starts, lanes.cost)])
            self.tell(min(1.0, (first + LANES) / count))
        final, states, cost = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return Fits(final, states, np.where(np.isfinite(cost), cost, np.inf))
