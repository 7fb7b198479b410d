"""Impulses: the state kicked at known times, y⁺ = fn(t, y⁻, args)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._called import check_arguments, users_own
from ._check import check_same_state, concrete
from ._problem import Problem
from ._xla._buffer import read
from ._xla._closure import with_closure


class Impulses(eqx.Module):
    """Kicks of the state at known times: doses, spikes, harvests. For `ddesolve(..., impulses=...)`.

    - `ts`: the times, increasing, t0 ≤ t < t1; places that are not used, at the end, hold `inf`. Differentiable.
    - `fn`: the kick, a function `(t, y, args) -> y⁺` of the state just before it that returns the state just after it, or
      with `values` a function `(t, y, value, args) -> y⁺`. Differentiable, with all that it closes over.
    - `values`: a PyTree of arrays with one entry for each of `ts` along their first axis (the sizes of doses, for example),
      of which `fn` is given the one that belongs to its kick. Differentiable.

    Several kicks at one time are applied in order. The value of the solution at the time of a kick is y⁺.
    """

    ts: Any
    fn: Any
    values: PyTree = None


class Kicks(eqx.Module):
    """The impulses of a problem: which of its declared jumps are kicks, and how the state is kicked."""

    numbers: Int[Array, " jumps"]
    """For each declared jump its number among the kicks, -1 if it is none of them."""
    fn: Callable
    """(t, state, value, args) to the state behind the kick."""
    values: PyTree

    def are(self, jump: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether a declared jump is a kick. (No jump, -1, is not.)"""
        return (jump >= 0) & (read(self.numbers, jnp.maximum(jump, 0)) >= 0)

    def apply(self, jump: Int[Array, ""], t: Float[Array, ""], state: PyTree, args: PyTree) -> PyTree:
        """The state behind declared jump number `jump`, a kick."""
        number = jnp.maximum(read(self.numbers, jnp.maximum(jump, 0)), 0)
        return self.fn(t, state, jax.tree.map(lambda x: read(x, number), self.values), args)

    def in_order(self, jump_ts: Float[Array, " jumps"], t0, t1) -> Bool[Array, ""]:
        """Whether the kicks came in order, from t0 on and before t1 but for rounding; those at infinity are none."""
        times = jnp.where(self.numbers >= 0, jump_ts, jnp.inf)
        rounding = 8 * jnp.finfo(t1.dtype).eps * jnp.maximum(jnp.abs(t0), jnp.abs(t1))
        inside = (times >= t0) & ((times < t1 - rounding) | (times == jnp.inf))
        return jnp.all(inside) & jnp.all((self.numbers < 0) | (lax.cummax(self.numbers) == self.numbers))


def check_impulses(impulses: Any, t0: Any, t1: Any) -> None:
    """What can be seen of impulses before anything is compiled."""
    if not isinstance(impulses, Impulses):
        raise ValueError(f"impulses is a {type(impulses).__name__}, expected lagrax.Impulses(ts, fn): make one")
    ts, fn = impulses.ts, impulses.fn
    real = eqx.is_array_like(ts) or isinstance(ts, list | tuple)
    real = real and jnp.issubdtype(jnp.result_type(jnp.asarray(ts)), jnp.number) and not jnp.iscomplexobj(jnp.asarray(ts))
    if not real or jnp.ndim(jnp.asarray(ts)) != 1:
        raise ValueError(f"impulses.ts is {ts!r}, expected a list of real times: pass a one-dimensional array")
    if not callable(fn):
        raise ValueError(
            f"impulses.fn is {fn!r}, expected a function ({_arguments(impulses)}) that returns the state: pass one"
        )
    check_arguments("impulses.fn", fn, _arguments(impulses))
    for path, leaf in jax.tree_util.tree_leaves_with_path(impulses.values):
        if np.shape(leaf)[:1] != (len(ts),):
            where = f"impulses.values{jax.tree_util.keystr(path)}"
            raise ValueError(
                f"{where} has shape {np.shape(leaf)}, expected one entry for each of {len(ts)} times: pass as many"
            )
    times, start, end = concrete(jnp.asarray(ts)), concrete(t0), concrete(t1)
    if times is None or times.size == 0:
        return
    if np.any(np.isnan(times)) or np.any(times[1:] < times[:-1]):
        raise ValueError(f"impulses.ts = {times} is not sorted (or has NaN in it), expected increasing times: sort them")
    finite = times[times < np.inf]
    if finite.size and ((start is not None and finite[0] < start) or (end is not None and finite[-1] >= end)):
        raise ValueError(
            f"impulses.ts runs from {finite[0]} to {finite[-1]}, expected t0 = {start} ≤ t < t1 = {end}: drop others, or "
            "write inf for them (a kick at t1 is the first of a solve that continues this one)"
        )


def _arguments(impulses: Impulses) -> str:
    return "t, y, args" if impulses.values is None else "t, y, value, args"


def with_kicks(problem: Problem, impulses: Impulses, state: PyTree) -> Problem:
    """The problem with kicks among its declared jumps."""
    plain, t0, args = problem.jump_ts, problem.t0, problem.args
    ts = jnp.asarray(impulses.ts, plain.dtype)
    values = jax.tree.map(jnp.asarray, impulses.values)
    given = impulses.fn
    fn = given if impulses.values is not None else lambda t, y, value, args: given(t, y, args)
    value = jax.tree.map(lambda x: x[0] if len(x) else jnp.zeros(x.shape[1:], x.dtype), values)
    _check_kick(fn, t0, state, value, args)
    times = jnp.concatenate([plain, ts])
    # (A stable sort: at one time a jump of the field comes first, then the kicks in their order.)
    order = jnp.argsort(times).astype(jnp.int32)
    numbers = jnp.where(order < len(plain), -1, order - len(plain))
    kicks = Kicks(numbers, with_closure(fn, t0, state, value, args), values)
    known = problem.roughness
    # (Kicks are not before t0, where this is of interest.)
    roughness = None if known is None else jnp.append(known, jnp.zeros(len(ts), jnp.int32))[order]
    return dataclasses.replace(problem, jump_ts=times[order], kicks=kicks, roughness=roughness)


def _check_kick(fn: Callable, t: Any, state: PyTree, value: PyTree, args: PyTree) -> None:
    """Traces a kick once; what it returns must be shaped like the state."""
    with users_own("impulses.fn", "t, y, value, args", t, state, value, args):
        out = eqx.filter_eval_shape(fn, t, state, value, args)
    check_same_state("what impulses.fn returned", out, state, dtypes=False)
