"""What a solve is given, before it is a problem: the past, the state at t0, and their precision."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ._called import check_arguments, users_own
from ._check import check_same_state, check_state

KEPT_KINKS = 32
"""How many kinks a dense solution hands on to a solve that continues it, besides jumps."""


def with_arrays(tree: PyTree) -> PyTree:
    """Python floats as arrays, which take on the precision of what they meet, as floats do."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, tree)


def initial_state(history: Any, y0: PyTree, t0: Any) -> PyTree[Array]:
    """y(t0), checked, and the history checked against it."""
    past = history_function(history)
    if past is None:
        check_state("history", history)
    else:
        t = jnp.asarray(t0, t0.dtype if eqx.is_inexact_array(t0) else float)
        check_arguments("the history", past, "t")
        with users_own("the history", "t", t):
            history = past(t)
        check_state("the history's value", history)
    if y0 is None:
        return jax.tree.map(jnp.asarray, history)
    check_state("y0", y0)
    y0 = jax.tree.map(jnp.asarray, y0)
    structure: Any = jax.tree.structure(history)
    if structure == jax.tree.structure(y0):
        # A plain Python number has no precision of its own.
        history = jax.tree.map(lambda h, y: jnp.asarray(h, y.dtype if _is_plain(h) else None), history, y0)
    check_same_state("history", history, y0)
    return y0


def history_function(history: Any):
    if isinstance(history, dfx.Solution):
        return history.evaluate
    return history if callable(history) else None


def known_until(history: Any, dtype) -> Float[Array, ""]:
    """The end of a solution that is continued, but for rounding; other histories have none."""
    if not isinstance(history, dfx.Solution):
        return jnp.full((), jnp.inf, dtype)
    end = jnp.asarray(history.t1, dtype)
    return end + 8 * jnp.finfo(dtype).eps * jnp.abs(end)


def declared(jump_ts: Any, history: Any, dtype) -> tuple[Float[Array, " jumps"], Int[Array, " jumps"] | None]:
    """(The jumps that were declared and the kinks that a solution to be continued brings along, in order; how rough it is at
    each of them, if that is known)."""
    given = jnp.asarray([] if jump_ts is None else jump_ts, dtype).reshape(-1)
    if not isinstance(history, dfx.Solution):
        return jnp.sort(given), None
    dense: Any = history.interpolation
    times = jnp.append(given, jnp.asarray(dense.kinks, dtype))
    order = jnp.argsort(times)
    return times[order], jnp.append(jnp.full(given.size, -1, jnp.int32), dense.levels)[order]


def kept_kinks(history: Any, y0_given: bool, jumps: PyTree) -> int:
    """How many kinks a solution hands on: all jumps, those of what it continues too, leave room for `KEPT_KINKS`."""
    dense: Any = history.interpolation if isinstance(history, dfx.Solution) else None
    inherited = KEPT_KINKS if dense is None else dense.kinks.size
    return inherited + int(y0_given) + sum(np.size(ts) for ts in jax.tree.leaves(jumps))


def time_dtype(y: PyTree, *times: Any):
    """Time has the precision of the state, or more if the given times have more."""
    kinds = [jnp.finfo(leaf.dtype).dtype for leaf in jax.tree.leaves(y)]
    kinds += [t.dtype for t in times if eqx.is_inexact_array(t) and not _is_plain(t)]
    dtype = kinds[0]
    for kind in kinds[1:]:
        dtype = jnp.promote_types(dtype, kind)
    return dtype


def _is_plain(x: Any) -> bool:
    """Whether x is, or was, a plain Python number, without a precision of its own."""
    return isinstance(x, float) or getattr(x, "weak_type", False)
