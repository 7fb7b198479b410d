"""A delay equation cut into pieces of one delay length, each an ordinary equation coupled to the piece before it."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Inexact, Int

from .._control import first_result
from .._method import Method
from .._problem import Problem
from .._results import RESULTS, failed
from .._setup import Setup

ROUNDING = 1e-6
"""How far, in delay lengths, the interval may exceed a whole number of them and still count as that many."""


class Pieces(eqx.Module):
    """The problem cut into n pieces of one delay length, the last of length `rest`."""

    problem: Problem
    n: int = eqx.field(static=True)

    @property
    def delay(self) -> Float[Array, ""]:
        return self.problem.delays[0]

    @property
    def rest(self) -> Float[Array, ""]:
        return self.problem.t1 - self.problem.t0 - (self.n - 1) * self.delay

    def length(self, k: int) -> Float[Array, ""]:
        return self.delay if k < self.n - 1 else self.rest

    def fits(self) -> Bool[Array, ""]:
        slack = ROUNDING * self.n * self.delay
        return (self.rest > -slack) & (self.rest <= self.delay + slack)

    def fold(self, ts: Float[Array, " times"]) -> tuple[Int[Array, " times"], Float[Array, " times"]]:
        """(The piece that each time falls into, the time since its start)."""
        since = ts - self.problem.t0
        piece = jnp.clip(jnp.ceil(since / self.delay).astype(jnp.int32) - 1, 0, self.n - 1)
        length = jnp.where(piece == self.n - 1, self.rest, self.delay)
        return piece, jnp.clip(since - piece.astype(since.dtype) * self.delay, 0, length)

    def times(self, theta: Float[Array, ""], m: int) -> Float[Array, " m"]:
        return self.problem.t0 + jnp.arange(m).astype(theta.dtype) * self.delay + theta

    def past(self, h: Inexact[Array, "m d"]) -> Inexact[Array, "m d"]:
        """What each of the first m pieces looks back at."""
        constant: Any = self.problem.history
        return jnp.concatenate([constant[None], h[:-1]])

    def slopes(self, theta: Float[Array, ""], h: Inexact[Array, "m d"]) -> Inexact[Array, "m d"]:
        """h' of the first m pieces; the last of all stands still once t1 is reached."""
        slopes = jax.vmap(self.field)(self.times(theta, len(h)), h, self.past(h))
        still = (jnp.arange(len(h)) == self.n - 1) & (theta > self.rest)
        return jnp.where(still[:, None], jnp.zeros_like(slopes), slopes)

    def field(self, t: Float[Array, ""], y: Inexact[Array, " d"], z: Inexact[Array, " d"]) -> Inexact[Array, " d"]:
        return self.problem.field(t, y, z[None])


class Count(eqx.Module):
    """Steps and evaluations of several solves, and the first failure among them."""

    accepted: Int[Array, ""]
    steps: Int[Array, ""]
    evaluations: Int[Array, ""]
    result: RESULTS

    def add(self, solution: dfx.Solution, method: Method, pieces: int, stops: int = 0, selected: bool = True) -> "Count":
        """`pieces`: how many evaluations of the vector field one of the right-hand side takes; `stops`: its jumps."""
        steps = jnp.asarray(solution.stats["num_steps"], jnp.int32)
        calls = 1 + 2 * selected + stops + steps * (method.stages - method.reuses_last)
        failure = RESULTS.promote(solution.result)
        return Count(
            self.accepted + jnp.asarray(solution.stats["num_accepted_steps"], jnp.int32),
            self.steps + steps,
            self.evaluations + pieces * calls,
            RESULTS.where(failed(self.result), self.result, failure),
        )


def start_count(pieces: Pieces, setup: Setup) -> Count:
    zero = jnp.zeros((), jnp.int32)
    result = RESULTS.where(pieces.fits(), RESULTS.successful, RESULTS.bad_intervals)
    positive = {"bad_delay": (pieces.delay > 0) & jnp.isfinite(pieces.delay)}
    return Count(zero, zero, zero, first_result(result, pieces.problem, setup, positive))


def solve_ordinary(field, solver, controller, setup: Setup, interval, y0, args, saveat=dfx.SaveAt(t1=True)) -> dfx.Solution:
    """One ordinary differential equation over an interval (start, end) that may run backwards. Keeps what is saved only."""
    start, end = interval
    adaptive = isinstance(controller, dfx.AbstractAdaptiveStepSizeController)
    dt0 = None if adaptive or setup.dt0 is None else jnp.where(end < start, -setup.dt0, setup.dt0)
    return dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        start,
        end,
        dt0,
        y0,
        args,
        saveat=saveat,
        stepsize_controller=controller,
        adjoint=dfx.ForwardMode(),
        max_steps=setup.max_steps,
        throw=False,
    )
