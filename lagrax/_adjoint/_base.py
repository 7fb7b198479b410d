"""What every way to differentiate a solve provides."""

import abc
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, PyTree

from .._problem import Problem
from .._setup import Setup
from .._trajectory import Trajectory
from .._xla._compat import nondifferentiable_backward


class AbstractAdjoint(eqx.Module):
    """How a solve is differentiated. Subclasses say how the observed states depend on the problem.

    Not public: what it is given and hands back are the package's own, and change with it.
    """

    @abc.abstractmethod
    def solve(
        self, problem: Problem, setup: Setup, ts: Float[Array, " times"]
    ) -> tuple[Trajectory, Inexact[Array, "times d"]]:
        """Integrates the problem and observes the solution at the times `ts`, with the derivative rule of this adjoint."""

    @property
    def reads_output(self) -> bool:
        """Whether the backward pass reads the forward solution between mesh points."""
        return False

    def prepared(self, t0: Any, t1: Any, lags: PyTree) -> "AbstractAdjoint":
        """This adjoint with what it has to know before tracing taken from the arguments of the solve."""
        return self

    def check(self, problem: Problem, setup: Setup, saveat: dfx.SaveAt) -> None:
        """Raises for a problem, or a wish for output, that this adjoint cannot serve."""


def observe(trajectory: Trajectory, ts: Float[Array, " times"], problem: Problem) -> Inexact[Array, "times d"]:
    """The solution at times in [t0, t1], each from the step that ends at or after it, with
    impulses from the one that starts at or before it."""
    if ts.size == 0:
        return jnp.zeros((0, problem.y0.size), problem.y0.dtype)
    assert trajectory.past is not None, "steps are kept where they are to be observed"
    # Where the state is kicked, its value is that behind the kick.
    return trajectory.past.state(ts, left=problem.kicks is None, like=problem.y0)


def without_tangents(trajectory: Trajectory) -> Trajectory:
    """Rids counters and result codes of the (meaningless) tangents that a custom derivative rule gives to integers, which
    the checks for failure could not digest. `stop_gradient` ignores integers, so they pass through floating point."""

    def cut(x):
        if eqx.is_array(x) and not eqx.is_inexact_array(x):
            return lax.stop_gradient(x.astype(jnp.float32)).astype(x.dtype)
        return x

    return jax.tree.map(cut, trajectory)


def once_only(tree: PyTree) -> PyTree:
    """What a rule for reverse mode returns: its own reverse derivative, of loops that only run forwards, is refused."""
    return nondifferentiable_backward(
        tree,
        msg="got a reverse-mode derivative of a reverse-mode derivative (grad of grad) of ddesolve, expected forward over "
        "reverse: use jax.hessian(f), or jax.jacfwd(jax.grad(f))",
    )


def is_asked(cotangent: PyTree) -> Bool[Array, ""]:
    """Whether any of the cotangents is not zero."""
    asked = [~(jnp.max(jnp.abs(leaf), initial=0) <= 0) for leaf in jax.tree.leaves(cotangent) if eqx.is_inexact_array(leaf)]
    return jnp.any(jnp.stack(asked)) if asked else jnp.array(False)
