"""How a solve ended, and the dense solution it can leave behind."""

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact, Int, PyTree

from ._compiled import compiled
from ._history import evaluate, split_rows, step_index
from ._problem import Problem


class RESULTS(dfx.RESULTS):
    """diffrax's result codes, and those that only a delay equation has."""

    successful = ""
    field_nonfinite = (
        "The vector field returned NaN or infinity (at the time in `sol.stats['t_reached']`): check it, its `args` and the "
        "history there, or tighten the tolerances."
    )
    bad_delay = "A delay is not a positive finite number: keep every delay above zero, for example with a bounded parameter."
    bad_times = "t1 is not after t0, or one of them is not finite: a delay equation is solved forwards, from t0 to t1 > t0."
    bad_intervals = "`num_intervals` of the adjoint is not (t1 - t0)/delay rounded up: pass that number."
    bad_ts = "`saveat.ts` is not sorted, or leaves [t0, t1]: pass increasing times inside the interval."


class DenseSolution(dfx.AbstractPath):
    """The solution as a function of time: the initial function before t0, the steps' polynomials from there on.

    This is `sol.interpolation` of a solve with `SaveAt(dense=True)`; `sol.evaluate` and `sol.derivative` call it, and a
    later solve continues from it. Differentiable in time and in everything the solve was.
    """

    rows: Inexact[Array, "rows row"]
    starts: Float[Array, " starts"]
    count: Int[Array, ""]
    problem: Problem
    kinks: Float[Array, " kinks"]
    """The latest times at which a derivative of low order jumps; unused places hold -∞."""
    t_end: Float[Array, ""]

    @property
    def t0(self) -> Float[Array, ""]:
        return self.problem.t0

    @property
    def t1(self) -> Float[Array, ""]:
        return self.t_end

    def evaluate(self, t0, t1=None, left: bool = True) -> PyTree[Array]:
        """The state at `t0`; with `t1`, the increment from `t0` to `t1`. At a kink or jump, `left` picks the limit."""
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1, left=left), self.evaluate(t0, left=left))
        return _value(self, jnp.asarray(t0, self.problem.t0.dtype), left)

    def state(self, t: Float[Array, ""], left: bool = True) -> Inexact[Array, " d"]:
        """The state at t as one vector."""
        y0 = self.problem.y0
        index = step_index(self.starts, self.count, t, left)
        solved = jnp.where(self.count > 0, evaluate(*split_rows(self.rows[index]), t, y0.dtype, y0.size), y0)
        # Never asked beyond t0, where it need not be defined.
        before = self.problem.initial_function(jnp.minimum(t, self.problem.t0)[None])[0]
        return jnp.where(t < self.problem.t0, before, solved)

    def derivative(self, t, left: bool = True) -> PyTree[Array]:
        """The derivative of the interpolated solution at t."""
        return _slope(self, jnp.asarray(t, self.problem.t0.dtype), left)


@compiled
def _value(dense: DenseSolution, t: Float[Array, ""], left: bool) -> PyTree[Array]:
    return dense.problem.unravel(dense.state(t, left))


@compiled
def _slope(dense: DenseSolution, t: Float[Array, ""], left: bool) -> PyTree[Array]:
    return jax.jvp(lambda s: dense.evaluate(s, left=left), (t,), (jnp.ones_like(t),))[1]


def failed(result: RESULTS):
    """Whether a solve ended for another reason than success or an event."""
    return jnp.asarray((result != RESULTS.successful) & (result != RESULTS.event_occurred))
