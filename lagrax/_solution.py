"""How a solve ended, and the dense solution it can leave behind."""

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
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
    bad_jumps = "A time in `jump_ts` is NaN: pass numbers, and -inf for jumps that there are not."
    bad_dt0 = "dt0 is not a positive number: pass a positive first step, or None with an adaptive controller."
    bad_state = "The initial state is NaN or infinite: check y0, or the history at t0."
    bad_history = (
        "t0 lies after the end of the solution that is to be continued: start where it ends, or solve it further first."
    )
    bad_precision = (
        "A delay is shorter than 128 spacings of the floating-point numbers at t0 or t1, where it drowns in rounding: shift "
        "time towards 0, or compute in float64."
    )


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
    """Times at which it, or a derivative of low order, jumps; those a solve that continues it may look back at."""
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
        index = step_index(self.starts, self.count, t, left)
        solved = jnp.where(self.count > 0, evaluate(*split_rows(self.rows[index]), t, y0.dtype, y0.size), y0)
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
    return dense.problem.unravel(state * known)


@compiled
def _slope(dense: DenseSolution, t: Float[Array, ""], left: bool) -> PyTree[Array]:
    return jax.jvp(lambda s: dense.evaluate(s, left=left), (t,), (jnp.ones_like(t),))[1]


def failed(result: RESULTS):
    """Whether a solve ended for another reason than success or an event."""
    return jnp.asarray((result != RESULTS.successful) & (result != RESULTS.event_occurred))
