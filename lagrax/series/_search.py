"""Looking for delays and parameters: many least-squares fits on windows at once, all by one compiled program.

Levenberg–Marquardt in the parameters, with the state at the start of each window free. Each window starts from an observed
sample, whose error would otherwise be carried through all of it. So its initial state u₀ is fitted too, with the sample as
one more residual. A window's initial state only changes that window: it is eliminated (Schur complement), and the equations
to be solved have the size of the parameters alone.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ._equation import Bounds, Equation, Windows

LANES = 24
"""Fits in one call of the compiled program. A shorter list is filled up, so that nothing is compiled twice."""

Residuals = Callable[..., Float[Array, " r"]]
"""`residuals(theta, start, window)` of one window: (r,), from parameters (p,) and its initial state (d,)."""


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


@eqx.filter_jit
def _fit_lanes(windows: Windows, equation: Equation, bounds: Bounds, sd, theta, starts, weights, free, iterations):
    def one(bounds, theta, starts, weights, free):
        residuals = lambda theta, start, window: equation.residuals(bounds.values(theta), start, window, sd)
        return minimise(residuals, theta, starts, windows, weights, free, iterations)

    return jax.vmap(one)(bounds, theta, starts, weights, free)


class Found(eqx.Module):
    """Where the iteration ended: parameters (p,), initial states (w, d), the weighted sum of squares, the count."""

    theta: Float[Array, " p"]
    starts: Float[Array, "w d"]
    cost: Float[Array, ""]
    iterations: Int[Array, ""]


class _State(eqx.Module):
    theta: Float[Array, " p"]
    starts: Float[Array, "w d"]
    local: "_Local"
    damping: Float[Array, ""]
    iteration: Int[Array, ""]
    done: Bool[Array, ""]


class _Local(eqx.Module):
    """The residuals (w, r) and their derivatives by parameters (w, r, p) and initial states (w, r, d)."""

    residuals: Float[Array, "w r"]
    by_theta: Float[Array, "w r p"]
    by_start: Float[Array, "w r d"]
    cost: Float[Array, ""]


def minimise(
    residuals: Residuals,
    theta: Float[Array, " p"],
    starts: Float[Array, "w d"],
    windows,
    weights: Float[Array, " w"],
    free: Float[Array, " p"],
    max_iterations: Int[Array, ""],
) -> Found:
    """Minimises Σ weights · |residuals|² over the `free` parameters (1, else 0) and the initial states, from those given."""

    def local_at(theta, starts) -> _Local:
        def one(start, window):
            def both(x):
                found = residuals(x[: theta.shape[0]], x[theta.shape[0] :], window)
                return found, found

            jacobian, value = jax.jacfwd(both, has_aux=True)(jnp.concatenate([theta, start]))
            return value, jacobian

        value, jacobian = jax.vmap(one)(starts, windows)
        split = theta.shape[0]
        return _Local(value, jacobian[..., :split] * free, jacobian[..., split:], _cost(value, weights))

    def body(state: _State) -> _State:
        move, moves = _step(state.local, weights, state.damping)
        theta, starts = state.theta + move * free, state.starts + moves
        new = local_at(theta, starts)
        better = new.cost < state.local.cost
        settled = jnp.abs(state.local.cost - new.cost) < 1e-6 * state.local.cost
        choose = lambda a, b: jnp.where(better, a, b)
        damping = jnp.where(better, state.damping / 4, state.damping * 6)
        return _State(
            choose(theta, state.theta),
            choose(starts, state.starts),
            jax.tree.map(choose, new, state.local),
            damping,
            state.iteration + 1,
            (better & settled) | (damping > 1e8),
        )

    first = _State(theta, starts, local_at(theta, starts), jnp.asarray(1e-2, theta.dtype), jnp.array(0), jnp.array(False))
    last = lax.while_loop(lambda state: ~state.done & (state.iteration < max_iterations), body, first)
    return Found(last.theta, last.starts, last.local.cost, last.iteration)


def _cost(residuals: Float[Array, "w r"], weights: Float[Array, " w"]) -> Float[Array, ""]:
    total = jnp.sum(weights * jnp.sum(residuals**2, axis=-1))
    return jnp.where(jnp.isfinite(total), total, jnp.inf)


def _step(local: _Local, weights: Float[Array, " w"], damping: Float[Array, ""]) -> tuple[Array, Array]:
    """The damped Gauss–Newton step of the parameters (p,) and of the initial states (w, d)."""
    finite = lambda x: jnp.where(jnp.isfinite(x), x, 0.0)
    r, j, k = finite(local.residuals), finite(local.by_theta), finite(local.by_start)
    eye = jnp.eye(k.shape[-1], dtype=k.dtype)
    inner = jnp.einsum("wrd,wre->wde", k, k) * (1 + damping * eye) + 1e-9 * eye
    cross = jnp.einsum("wrd,wrp->wdp", k, j)
    solved = _solve(inner, jnp.concatenate([cross, jnp.einsum("wrd,wr->wd", k, r)[..., None]], axis=-1))
    by, own = solved[..., :-1], solved[..., -1]
    matrix = jnp.einsum("w,wrp,wrq->pq", weights, j, j)
    reduced = matrix - jnp.einsum("w,wdp,wdq->pq", weights, cross, by)
    right = jnp.einsum("w,wrp,wr->p", weights, j, r) - jnp.einsum("w,wdp,wd->p", weights, cross, own)
    # Marquardt's scaling; a parameter that is held, or does nothing, has a row of zeros.
    scale = jnp.diag(matrix)
    floor = 1e-10 * jnp.max(scale) + 1e-30
    move = -_solve(reduced + jnp.diag(damping * scale + floor), right[:, None])[:, 0]
    return move, -own - jnp.einsum("wdp,p->wd", by, move)


def _solve(matrix: Float[Array, "*batch n n"], right: Float[Array, "*batch n k"]) -> Float[Array, "*batch n k"]:
    """Gauss–Jordan without pivoting, for small positive definite matrices.

    By hand: LAPACK's would be called for each member of a batch, from inside a loop.
    """
    n = matrix.shape[-1]
    whole = jnp.concatenate([matrix, right], axis=-1)
    for i in range(n):
        row = whole[..., i, :] / whole[..., i, i, None]
        whole = whole - whole[..., :, i, None] * row[..., None, :]
        whole = whole.at[..., i, :].set(row)
    return whole[..., n:]
