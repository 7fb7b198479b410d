"""The solution as a function of time."""

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact, Int, PyTree

from .._past import Past
from .._problem import Problem
from .._xla._compiled import compiled


class DenseSolution(dfx.AbstractPath):
    """The solution as a function of time: the initial function before t0, the steps' polynomials from there on.

    This is `sol.interpolation` of a solve with `SaveAt(dense=True)`; `sol.evaluate` and `sol.derivative` call it, and a
    later solve continues from it. Differentiable in time and in everything the solve was.
    """

    past: Past
    problem: Problem
    kinks: Float[Array, " kinks"]
    """Times at which it, or a derivative of low order, jumps; those a solve that continues it may look back at."""
    levels: Int[Array, " kinks"]
    """Which derivative it is that jumps there, as `_planned/_breakpoints.py` counts."""
    t_end: Float[Array, ""]

    @property
    def t0(self) -> Float[Array, ""]:
        return self.problem.t0

    @property
    def t1(self) -> Float[Array, ""]:
        return self.t_end

    def evaluate(self, t0, t1=None, left: bool = True) -> PyTree[Array]:
        """The state at `t0`; with `t1`, the increment from `t0` to `t1`. At a kink or jump, `left` picks the limit.

        After the end of the solution it is NaN: nothing was computed there.
        """
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1, left=left), self.evaluate(t0, left=left))
        return _value(self, jnp.asarray(t0, self.problem.t0.dtype), left)

    def state(self, t: Float[Array, ""], left: bool = True) -> Inexact[Array, " d"]:
        """The state at t as one vector."""
        y0 = self.problem.y0
        solved = jnp.where(self.past.count > 0, self.past.state(t, left, y0), y0)
        # Never asked beyond t0, where it need not be defined.
        before = self.problem.initial_function(jnp.minimum(t, self.problem.t0)[None])[0]
        return jnp.where(t < self.problem.t0, before, solved)

    def derivative(self, t, left: bool = True) -> PyTree[Array]:
        """The derivative of the interpolated solution at t; NaN after its end."""
        return _slope(self, jnp.asarray(t, self.problem.t0.dtype), left)


@compiled
def _value(dense: DenseSolution, t: Float[Array, ""], left: bool) -> PyTree[Array]:
    end = lax.stop_gradient(dense.t_end)
    beyond = jnp.where(t > end, t - end, 0)
    rounding = 8 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(end), jnp.abs(dense.t0))
    state = dense.state(t - lax.stop_gradient(beyond), left)
    # By a factor, so that derivatives are NaN too.
    known = jnp.where(beyond > rounding, jnp.nan, 1.0).astype(state.dtype)
    return dense.problem.state(state * known)


@compiled
def _slope(dense: DenseSolution, t: Float[Array, ""], left: bool) -> PyTree[Array]:
    return jax.jvp(lambda s: dense.evaluate(s, left=left), (t,), (jnp.ones_like(t),))[1]
