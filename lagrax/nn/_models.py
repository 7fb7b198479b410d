"""Neural differential equations as layers: an input goes in, the solution comes out."""

import abc
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._adjoint import AbstractAdjoint, DiscreteAdjoint
from .._check import concrete
from .._lag import are_planned, is_lag
from .._solve import ddesolve
from .._term import DelayTerm
from ._parameters import Driven, TimeDependentParameters, attach, detach, is_driven
from ._sampled import SampledHistory

_HANDOVER = 0.0
"""When one field takes over from the other."""


class AbstractModel(eqx.Module):
    """What the models share: the settings below, given by keyword, and three ways to be called.

    - `model(x)` is a feature extractor: the state h(t1), augmented components included.
    - `model.sequence(ts, x)` is a sequence model: the states at the times `ts`, without the augmented components.
    - `model.solve(x)` or `model.solve(x, ts)` is the whole `diffrax.Solution`.

    An input x has the shape of one state, (..., d): leading axes are a batch that shares the steps of the solver. Use
    `jax.vmap` for members with steps of their own.

    **Settings:**

    - `t1`: the final time of `model(x)`, a plain number; solves start at 0.
    - `augment`: how many components of zeros to append to the input along `axis` (-1; for images (..., c, H, W), -3).
    - `solver`, `stepsize_controller`, `dt0`, `max_steps`, `adjoint`: as in [`lagrax.ddesolve`][].
    """

    t1: float = eqx.field(static=True, kw_only=True, default=1.0, converter=float)
    augment: int = eqx.field(static=True, kw_only=True, default=0)
    axis: int = eqx.field(static=True, kw_only=True, default=-1)
    solver: dfx.AbstractSolver = eqx.field(static=True, kw_only=True, default=dfx.Tsit5())
    stepsize_controller: dfx.AbstractStepSizeController = eqx.field(
        static=True, kw_only=True, default=dfx.PIDController(rtol=1e-3, atol=1e-6)
    )
    dt0: float | None = eqx.field(static=True, kw_only=True, default=None)
    max_steps: int = eqx.field(static=True, kw_only=True, default=256)
    adjoint: AbstractAdjoint = eqx.field(kw_only=True, default=DiscreteAdjoint())

    def __check_init__(self):
        if not 0 < self.t1 < np.inf:
            raise ValueError(f"t1 = {self.t1}, expected a positive finite time: models start at 0 and run forwards")
        if self.augment < 0:
            raise ValueError(f"augment = {self.augment}, expected a number of components to append: 0 for none")

    @abc.abstractmethod
    def solve(
        self,
        x: PyTree,
        ts: Any = None,
        *,
        args: PyTree = None,
        adjoint: AbstractAdjoint | None = None,
        dense: bool = False,
        throw: bool = True,
    ) -> dfx.Solution:
        """Runs the model on the input x.

        **Arguments:**

        - `x`: the input.
        - `ts`: the times to save at; the last is where the solve ends. By default only t1.
        - `args`: handed to the vector field.
        - `adjoint`: in the place of the model's own.
        - `dense`, `throw`: as in [`lagrax.ddesolve`][].

        **Returns:**

        A `diffrax.Solution`. `ys` are whole states, augmented components included (and `Driven` ones if the parameters
        depend on time); `stats["num_evaluations"]` counts the evaluations of the vector field.
        """

    def __call__(self, x: PyTree, *, args: PyTree = None, adjoint: AbstractAdjoint | None = None) -> PyTree:
        """h(t1), augmented components included. Differentiable in x, `args` and every parameter."""
        ys = detach(self.solve(x, args=args, adjoint=adjoint).ys)
        return jax.tree.map(lambda y: y[0], ys)

    def sequence(self, ts: Any, x: PyTree, *, args: PyTree = None, adjoint: AbstractAdjoint | None = None) -> PyTree:
        """The states at the increasing times `ts` of shape (n,): (n, ..., d), without the augmented components.

        Differentiable in ts, x, `args` and every parameter.
        """
        ys = detach(self.solve(x, ts, args=args, adjoint=adjoint).ys)
        if self.augment == 0:
            return ys
        axis = self.axis if self.axis < 0 else self.axis + 1
        return lax.slice_in_dim(ys, 0, ys.shape[axis] - self.augment, axis=axis)


class NeuralODE(AbstractModel):
    """`h'(t) = f(t, h(t))`, h(0) = x (and zeros, if augmented).

    `field` is called as `field(t, y, None, args)`, an [`lagrax.nn.MLPField`][] with `Form.CURRENT` for example.
    """

    field: Callable

    def solve(self, x, ts=None, *, args=None, adjoint=None, dense=False, throw=True):
        end = _end(self, ts)
        # A delay as long as the solve: nothing is ever looked up.
        term = DelayTerm(_WithoutPast(self.field), lax.stop_gradient(end) if eqx.is_array(end) else end)
        history = attach(self.field, _augment(self, x))
        return _run(self, term, 0.0, end, history, ts, args, adjoint, dense, throw)


class NeuralDDE(AbstractModel):
    """`h'(t) = f(t, h(t), h(t - τ))`, h(t) = x (and zeros, if augmented) for t ≤ 0.

    - `field`: `field(t, y, delayed, args)`, an [`lagrax.nn.MLPField`][] or any module or function of this signature.
    - `delays`: a PyTree of delays, as in [`lagrax.DelayTerm`][]. Numbers are fixed, a [`lagrax.nn.LearnableDelay`][] is
      trained.
    - `history`: the initial function in the place of the constant: `history(t, x)` for t ≤ 0, smooth in t, where x is
      whatever the model is called with. If it is a module, its arrays are trained too. [`lagrax.nn.read_samples`][] reads
      an observed past.
    - `y0`: the state at 0 where it is not `history(0, x)`: `y0(x)`. The solution jumps there.
    - `jump_ts`: times at which the field jumps or the history has a kink, as in [`lagrax.ddesolve`][].
    """

    field: Callable
    delays: PyTree = eqx.field(converter=lambda delays: _frozen(delays))
    history: Callable | None = eqx.field(kw_only=True, default=None)
    y0: Callable | None = eqx.field(kw_only=True, default=None)
    jump_ts: tuple[float, ...] | None = eqx.field(kw_only=True, default=None, static=True)

    def solve(self, x, ts=None, *, args=None, adjoint=None, dense=False, throw=True):
        state = lambda h: attach(self.field, _augment(self, h))
        if isinstance(x, SampledHistory):
            x.check(self.delays)
        initial = self.history
        history = state(x) if initial is None else lambda t: state(initial(t, x))
        y0 = None if self.y0 is None else state(self.y0(x))
        term = DelayTerm(self.field, self.delays)
        return _run(self, term, 0.0, _end(self, ts), history, ts, args, adjoint, dense, throw, self.jump_ts, y0)


class NeuralODEDDE(AbstractModel):
    """NODE+NDDE: a delay equation whose initial function is the path of an ordinary one.

    `h(-τ) = x`, `h'(t) = g(t, h(t))` on [-τ, 0] and `h'(t) = f(t, h(t), h(t - τ))` from there on, so that h(0) is the
    neural ODE of x and f reads its path. With several delays τ is the largest. Both parts are one solve, from -τ on, and
    one differentiable computation; times in `ts` may start at -τ.

    - `ode_field`: g, called as `g(t, y, None, args)`.
    - `dde_field`: f, called as `f(t, y, delayed, args)`.
    - `delays`: as in [`lagrax.nn.NeuralDDE`][].
    """

    ode_field: Callable
    dde_field: Callable
    delays: PyTree = eqx.field(converter=lambda delays: _frozen(delays))

    def solve(self, x, ts=None, *, args=None, adjoint=None, dense=False, throw=True):
        field = Handover(self.ode_field, self.dde_field)
        term = DelayTerm(field, self.delays)
        start = -_longest(term)
        history = field.attach(_augment(self, x))
        return _run(self, term, start, _end(self, ts), history, ts, args, adjoint, dense, throw, jump_ts=[_HANDOVER])


class Handover(eqx.Module):
    """`before(t, y, None, args)` up to time `_HANDOVER`, then `after(t, y, delayed, args)`.

    If the parameters of one of them depend on time, states are `Driven(h, (w_before, w_after))`, and those of the other
    stand still meanwhile.
    """

    before: Callable
    after: Callable

    def attach(self, h: PyTree) -> PyTree:
        """The state at the start."""
        fields = (self.before, self.after)
        w = tuple(f.initial_parameters() if isinstance(f, TimeDependentParameters) else None for f in fields)
        return h if w == (None, None) else Driven(h, w)

    def __call__(self, t: Float[Array, ""], y: PyTree, delayed: PyTree, args: Any) -> PyTree:
        # A conditional and not a selection: only one of the networks is evaluated (unless under `vmap`).
        return lax.cond(t < _HANDOVER, lambda: self._slope(0, t, y, None, args), lambda: self._slope(1, t, y, delayed, args))

    def _slope(self, which: int, t: Float[Array, ""], y: PyTree, delayed: PyTree, args: Any) -> PyTree:
        field = (self.before, self.after)[which]
        if not is_driven(y):
            return field(t, y, delayed, args)
        own = lambda state: state.h if state.w[which] is None else Driven(state.h, state.w[which])
        slope = field(t, own(y), jax.tree.map(own, delayed, is_leaf=is_driven), args)
        w = [jax.tree.map(jnp.zeros_like, still) for still in y.w]
        if is_driven(slope):
            w[which] = slope.w
        return Driven(detach(slope), tuple(w))


class _WithoutPast(eqx.Module):
    field: Callable

    def __call__(self, t, y, delayed, args):
        return self.field(t, y, None, args)


def _run(
    model: AbstractModel, term, t0, t1, history, ts, args, adjoint, dense, throw, jump_ts=None, y0=None
) -> dfx.Solution:
    return ddesolve(
        term,
        model.solver,
        t0,
        t1,
        model.dt0,
        history,
        args,
        y0=y0,
        saveat=dfx.SaveAt(t1=ts is None, ts=ts, dense=dense),
        stepsize_controller=model.stepsize_controller,
        adjoint=model.adjoint if adjoint is None else adjoint,
        jump_ts=jump_ts,
        max_steps=model.max_steps,
        throw=throw,
    )


def _end(model: AbstractModel, ts: Any) -> Float[Array, ""] | float:
    """Where the solve ends: a plain number if it is known."""
    if ts is None:
        return model.t1
    if jnp.ndim(ts) != 1 or jnp.size(ts) == 0:
        raise ValueError(f"ts has shape {jnp.shape(ts)}, expected (n,) with n >= 1: pass a vector of increasing times")
    last = concrete(ts[-1])
    return ts[-1] if last is None else float(last)


def _augment(model: AbstractModel, x: PyTree) -> PyTree:
    """x with zeros appended."""
    if model.augment == 0:
        return x
    if not eqx.is_array_like(x) or not -jnp.ndim(x) <= model.axis < jnp.ndim(x):
        what = f"shape {jnp.shape(x)}" if eqx.is_array_like(x) else f"type {type(x).__name__}"
        raise ValueError(f"augment = {model.augment} got an input of {what}, expected an array that has axis {model.axis}")
    x = jnp.asarray(x)
    shape = list(x.shape)
    shape[model.axis] = model.augment
    return jnp.concatenate([x, jnp.zeros(shape, x.dtype)], axis=model.axis)


def _frozen(delays: PyTree) -> PyTree:
    """Numbers as plain floats, which are not trained; modules and arrays as they are."""
    is_number = lambda leaf: isinstance(leaf, int | np.generic | np.ndarray) and jnp.ndim(leaf) == 0
    is_leaf = lambda leaf: isinstance(leaf, eqx.Module) and callable(leaf)
    return jax.tree.map(lambda leaf: float(leaf) if is_number(leaf) else leaf, delays, is_leaf=is_leaf)


def _longest(term: DelayTerm) -> Float[Array, ""] | float:
    lags = jax.tree.leaves(term.lags(), is_leaf=is_lag)
    if not are_planned(lags) or any(lag.reads_slope for lag in lags):
        raise ValueError(
            "NeuralODEDDE got a delay that is a function or overlaps, expected constant ones: its first part is as long as "
            "the longest delay, so use NeuralDDE with an initial function"
        )
    delays = [lag.delay for lag in lags]
    if all(isinstance(delay, float) for delay in delays):
        return max(delays)
    longest = delays[0]
    for delay in delays[1:]:
        longest = jnp.maximum(longest, delay)
    return longest
