"""From a trajectory to what `saveat` asks for: plain differentiable functions of the accepted steps."""

from collections.abc import Iterator

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact, PyTree

from .._past import row_start, row_state
from .._problem import Problem
from .._trajectory import Trajectory
from ._results import failed


def save(
    saveat: dfx.SaveAt,
    trajectory: Trajectory,
    observed: list[Inexact[Array, "times d"]],
    final: tuple[Float[Array, ""], Inexact[Array, " d"]],
    problem: Problem,
    args: PyTree,
    max_steps: int,
) -> tuple[PyTree, PyTree]:
    """(ts, ys) with the structure of `saveat.subs`; places that the solution did not reach hold infinity, as in diffrax.

    `observed` holds the states at the `ts` of each of the subs that has any, `final` time and state at the end.
    """
    states = iter(observed)
    is_sub = lambda x: isinstance(x, dfx.SubSaveAt)
    saved = jax.tree.map(
        lambda sub: _save_sub(sub, trajectory, states, final, problem, args, max_steps), saveat.subs, is_leaf=is_sub
    )
    is_pair = lambda x: isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], jax.Array)
    return (
        jax.tree.map(lambda pair: pair[0], saved, is_leaf=is_pair),
        jax.tree.map(lambda pair: pair[1], saved, is_leaf=is_pair),
    )


def _save_sub(sub: dfx.SubSaveAt, trajectory, states: Iterator, final, problem, args, max_steps: int):
    parts, (t_final, y_final) = [], final
    if sub.t0:
        parts.append((problem.t0[None], problem.y0[None]))
    if sub.ts is not None:
        ts = sub.ts.astype(problem.t0.dtype)
        ys = next(states)
        # The end of the last step to the last bit, which for an event is inside the step. It depends on its own time of
        # observation and not on t1, even if the two are equal.
        parts.append((ts, ys + lax.stop_gradient(jnp.where((ts == t_final)[:, None], y_final[None] - ys, 0))))
    if sub.steps:
        parts.append(_every(sub.steps, max_steps, trajectory, t_final, y_final))
    if sub.t1 and sub.steps != 1:
        parts.append((t_final[None], y_final[None]))
    ts = jnp.concatenate([t for t, _ in parts])
    ys = jnp.concatenate([y for _, y in parts])
    reached = ts <= t_final
    ys = jax.vmap(lambda t, y: sub.fn(t, problem.unravel(y), args))(jnp.where(reached, ts, t_final), ys)
    # Where a failed solve did not come to, infinity still depends on what it came to: its gradient is NaN then, not zero.
    nothing = lambda leaf: jnp.where(failed(trajectory.result), leaf + jnp.inf, jnp.inf).astype(leaf.dtype)
    mask = lambda leaf: jnp.where(reached.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, nothing(leaf))
    ys = jax.tree.map(lambda leaf: mask(leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf, ys)
    return jnp.where(reached, ts, jnp.inf), ys


def _every(n: int, max_steps: int, trajectory: Trajectory, t_final, y_final):
    """The end of every n-th accepted step."""
    assert trajectory.past is not None, "steps are kept where they are to be saved"
    rows, count = trajectory.past.rows, trajectory.count
    ends = jnp.arange(n, max_steps + 1, n, dtype=jnp.int32)
    last = ends == count
    following = rows.at[ends].get(mode="clip")
    ts = jnp.where(ends <= count, jnp.where(last, t_final, row_start(following)), jnp.inf)
    ys = jnp.where(last[:, None], y_final[None], row_state(following, y_final))
    return ts, ys
