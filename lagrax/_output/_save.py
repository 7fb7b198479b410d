"""From a trajectory to what `saveat` asks for: plain differentiable functions of the accepted steps."""

from collections.abc import Iterator

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Inexact, PyTree

from .._past import row_start, row_state
from .._problem import Problem
from .._results import RESULTS, failed
from .._trajectory import Trajectory


def save(
    saveat: dfx.SaveAt,
    trajectory: Trajectory,
    observed: list[Inexact[Array, "_ _"]],
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
    if sub.ts is not None and problem.output is not None:
        return _save_outputs(sub, trajectory, next(states), t_final, y_final, problem, args)
    if sub.t0:
        parts.append((problem.t0[None], _first(trajectory, problem)[None]))
    if sub.ts is not None:
        ts = sub.ts.astype(problem.t0.dtype)
        ys = next(states)
        if problem.kicks is not None:
            # An event that a kick brought about is behind the kick, where there is no step yet.
            stopped = (ts == t_final) & (trajectory.result == RESULTS.event_occurred)
            ys = jnp.where(stopped[:, None], y_final[None], ys)
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
    return _masked(ts, ys, reached, trajectory)


def _save_outputs(sub: dfx.SubSaveAt, trajectory, observed: Inexact[Array, "times k"], t_final, y_final, problem, args):
    """The same if `fn` was applied to the states at `ts` on the way."""
    ts = sub.ts.astype(problem.t0.dtype)  # type: ignore[union-attr]
    save = lambda t, y: sub.fn(t, problem.unravel(y), args)
    shapes, structure = jax.tree.flatten(jax.eval_shape(save, problem.t0, problem.y0))
    places = np.cumsum([shape.size for shape in shapes])[:-1]
    leaves = [x.reshape(-1, *shape.shape) for x, shape in zip(jnp.split(observed, places, axis=1), shapes, strict=True)]
    parts = [(ts, jax.tree.unflatten(structure, leaves))]
    single = lambda t, y: (t[None], jax.tree.map(lambda leaf: leaf[None], save(t, y)))
    if sub.t0:
        parts.insert(0, single(problem.t0, problem.y0))
    if sub.t1:
        parts.append(single(t_final, y_final))
    times = jnp.concatenate([t for t, _ in parts])
    ys = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(y for _, y in parts))
    return _masked(times, ys, times <= t_final, trajectory)


def _masked(ts, ys: PyTree, reached, trajectory: Trajectory):
    """(ts, ys) with infinity in places that were not reached."""
    # Where a failed solve did not come to, infinity still depends on what it came to: its gradient is NaN then, not zero.
    nothing = lambda leaf: jnp.where(failed(trajectory.result), leaf + jnp.inf, jnp.inf).astype(leaf.dtype)
    mask = lambda leaf: jnp.where(reached.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, nothing(leaf))
    ys = jax.tree.map(lambda leaf: mask(leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf, ys)
    return jnp.where(reached, ts, jnp.inf), ys


def _first(trajectory: Trajectory, problem: Problem) -> Inexact[Array, " d"]:
    """The state at t0, behind a kick there."""
    if problem.kicks is None:
        return problem.y0
    assert trajectory.past is not None, "steps are kept where a kick at t0 is to be saved"
    kicked = trajectory.past.state(problem.t0, left=False, like=problem.y0)
    return jnp.where(trajectory.count > 0, kicked, trajectory.y_end)


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
