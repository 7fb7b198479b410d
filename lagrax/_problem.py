"""What is solved and differentiated: the equation with its state laid out as one vector."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Inexact, Int, PyTree, PyTreeDef

from ._lag import AbstractLag
from ._xla._compat import unvmap_any


class Problem(eqx.Module):
    """A delay equation `y' = f(t, y, y(α_1), …, y(α_n))` on [t0, t1], its state flattened to a vector of size d.

    Either all delays are constant, α_i = t - τ_i with the `delays` τ, or all are among the `lags`.

    Every array in here is an input that an adjoint differentiates. Closures of `f` and `history` have been turned into
    leaves (`_closure.py`), so that a custom derivative rule sees the traced values they close over.
    """

    vector_field: Callable
    args: PyTree
    delays: Float[Array, " n"]
    history: Callable | Inexact[Array, " d"]
    y0: Inexact[Array, " d"]
    t0: Float[Array, ""]
    t1: Float[Array, ""]
    jump_ts: Float[Array, " jumps"]
    events: PyTree
    history_end: Float[Array, ""]
    """Until when the history is known: t0 may not be later."""
    unravel: Callable = eqx.field(static=True)
    delay_structure: PyTreeDef = eqx.field(static=True)
    may_jump: bool = eqx.field(static=True)
    """Whether the solution may be discontinuous at t0: y0 was given, or the history is a function."""
    roughness: Int[Array, " jumps"] | None = None
    """How rough the history is at `jump_ts`, in levels of `_planned/_breakpoints.py`, if a solution that is continued knows;
    else it may jump at each of them."""
    impulsive: bool = eqx.field(static=True, default=False)
    """Whether what a delay looks back at may itself be discontinuous at `jump_ts` after t0, not only its derivative."""
    lags: tuple[AbstractLag, ...] = ()
    slopes: tuple[bool, ...] = eqx.field(static=True, default=())
    """Which of the `delays` look at the derivative; none if it is empty."""
    kicks: Any = None
    """Which of `jump_ts` are kicks of the state, and how it is kicked (`_impulses.py`); None if there are none."""
    output: Any = None
    """With bounded memory, the function (t, state, args) to what is saved of a state, if that is not the state itself."""
    network: Any = None
    """Which components the lags read, if there are arrays of delays among them (`_network/_network.py`)."""
    sums: Any = None
    """The integrals over the past that are computed at every stage (`_distributed/_sum.py`), if there are any."""
    sound: Bool[Array, ""] | None = None
    """Whether the integrals that start in the history are accurate, if there are any."""
    chained: bool = eqx.field(static=True, default=False)
    """Whether the state is a pair, of the user's state and of integrals over its past (`_distributed/`)."""

    def field(self, t: Float[Array, ""], y: Inexact[Array, " d"], delayed: Any) -> Inexact[Array, " d"]:
        """The vector field on flat states: (t, y, the n delayed states, or a network's elements, as a pair with the sums if
        there are any) to y'."""
        states, sums = (delayed, None) if self.sums is None else delayed
        if self.network is None:
            leaves = [self.unravel(z) for z in jnp.unstack(states)]
        else:
            leaves = self.network.leaves(states, y, t.dtype, self)
        past = jax.tree.unflatten(self.delay_structure, leaves)
        if sums is not None:
            past = (past, self.sums.trees(sums))
        return ravel(self.vector_field(t, self.unravel(y), past, self.args), y.dtype)

    def state(self, y: Inexact[Array, " d"]) -> PyTree[Array]:
        """The user's state."""
        return self.unravel(y)[0] if self.chained else self.unravel(y)

    def looked_up(self, t: Float[Array, ""], y: Inexact[Array, " d"]) -> Float[Array, " n"]:
        """The times that the vector field looks back at from (t, y)."""
        if not self.lags:
            return t - self.delays
        state = self.state(y)
        return jnp.stack([jnp.asarray(lag.time(t, state, self.args), t.dtype) for lag in self.lags])

    def kicked(self, jump: Int[Array, ""], t: Float[Array, ""], y: Inexact[Array, " d"]) -> Inexact[Array, " d"]:
        """The state behind declared jump number `jump`: another one than y if that is a kick."""
        is_kick = self.kicks.are(jump)

        def kick():
            new = self.kicks.apply(jump, t, self.state(y), self.args)
            # Integrals over the past do not jump with it.
            return ravel((new, self.unravel(y)[1]) if self.chained else new, y.dtype)

        return lax.cond(unvmap_any(is_kick), lambda: jnp.where(is_kick, kick(), y), lambda: y)

    def observed(self, t: Float[Array, ""], y: Inexact[Array, " d"]) -> Inexact[Array, " k"]:
        """What is saved of the state at time t, as one vector."""
        return y if self.output is None else ravel(self.output(t, self.unravel(y), self.args), y.dtype)

    def jumps_before(self) -> Int[Array, ""]:
        """How many of the declared jumps are over when the solve starts: a kick at t0 is not."""
        if self.kicks is None:
            return jnp.sum(self.jump_ts <= self.t0, dtype=jnp.int32)
        over = jnp.where(self.kicks.numbers >= 0, self.jump_ts < self.t0, self.jump_ts <= self.t0)
        return jnp.sum(over, dtype=jnp.int32)

    def initial_function(self, times: Float[Array, " times"]) -> Inexact[Array, "times d"]:
        """The history at several times before t0."""
        if callable(self.history):
            history: Any = self.history
            return jax.vmap(lambda t: ravel(history(t), self.y0.dtype))(times)
        return jnp.broadcast_to(self.history, (*times.shape, *self.history.shape))

    def initial_delayed(self, times: Float[Array, " n"]) -> Inexact[Array, "n d"]:
        """What each lag sees of the history: the state, or its derivative."""
        reads_slope = np.array([lag.reads_slope for lag in self.lags] if self.lags else self.slopes)
        if not np.any(reads_slope):
            return self.initial_function(times)
        states, slopes = jax.jvp(self.initial_function, (times,), (jnp.ones_like(times),))
        return jnp.where(reads_slope[:, None], slopes, states)


def ravel(tree: PyTree[Any], dtype) -> Inexact[Array, " d"]:
    """All leaves one after another, in `dtype`."""
    leaves = [jnp.ravel(leaf).astype(dtype) for leaf in jax.tree.leaves(tree)]
    return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves)
