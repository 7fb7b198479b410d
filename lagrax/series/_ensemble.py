"""Training an ensemble: members in one program, each validated on blocks of the record that it does not see."""

import dataclasses
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax

from ._forecaster import BLOCKS
from ._neural import Member, gather
from ._stages import Stages

BATCH, JITTER = 64, 0.05
RATE, DELAY_RATE, DECAY, CLIP = 4e-3, 3.0, 1e-3, 1.0
CHUNK = 25
MOST_VALIDATED = 400
KEEP_SECONDS = 10.0


@dataclasses.dataclass
class Split:
    """For each member, rows to train on and rows to validate on: (members, m), filled up by repetition."""

    training: np.ndarray
    validation: np.ndarray


def split(rows: np.ndarray, window: int, members: int) -> tuple[Split, np.ndarray]:
    """Member m validates on the blocks m and m + 5 of ten, and trains on windows that do not touch what they predict.

    The second result says which member validates on each row, −1 if none does.
    """
    pairs = BLOCKS // 2
    half = (np.arange(len(rows)) * BLOCKS // len(rows)) % pairs
    targets = np.arange(1, window + 1)
    training, validation = [], []
    for member in range(members):
        held = rows[half == member % pairs]
        taken = np.zeros(rows[-1] + window + 1, bool)
        taken[held[:, None] + targets] = True
        training.append(rows[~taken[rows[:, None] + targets].any(axis=1)])
        validation.append(held[:: max(1, -(-len(held) // MOST_VALIDATED))])
    same = lambda lists: np.stack([np.resize(one, max(map(len, lists))) for one in lists])
    return Split(same(training), same(validation)), np.where(half < members, half, -1)


def optimizer() -> optax.GradientTransformation:
    """AdamW, with a higher rate for the delays.

    By scaling the updates: `optax.multi_transform` takes a function in the place of labels, and takes a model that can be
    called for one.
    """
    faster = lambda updates: eqx.tree_at(lambda member: member.raw, updates, replace_fn=lambda raw: DELAY_RATE * raw)
    delays = optax.stateless(lambda updates, params: faster(updates))
    return optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(RATE, weight_decay=DECAY), delays)


@dataclasses.dataclass(frozen=True)
class Training:
    """What trainings have in common: the table, samples in a window and in its past, when to end, and what is kept."""

    data: tuple
    window: int
    past: int
    until: float
    stages: Stages


class _Course(eqx.Module):
    """How far a training is: the members' arrays now and at their best, errors (members,), iterations since, in all."""

    arrays: Member
    state: optax.OptState
    best: Member
    lowest: np.ndarray
    since: np.ndarray
    done: int

    def leaves(self) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self)]

    def like(self, leaves: list[np.ndarray]) -> "_Course":
        """This one with the leaves of another."""
        as_before = lambda old, new: int(new) if isinstance(old, int) else jnp.asarray(new) if eqx.is_array(old) else new
        olds, structure = jax.tree.flatten(self)
        return jax.tree.unflatten(structure, [as_before(old, new) for old, new in zip(olds, leaves, strict=True)])


def train(
    member: Member,
    rows: Split,
    training: Training,
    *,
    key: jax.Array,
    iterations: int,
    patience: int,
    name: str,
    tell: Callable[[float], None],
) -> Member:
    """The members of the lowest validation error. Ends when none improves for `patience`.

    How far it is, is kept every ten seconds, and at the end as the stage `name`.
    """
    arrays, rest = eqx.partition(member, eqx.is_inexact_array)
    count = rows.training.shape[0]
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes whole numbers and others
        state = jax.vmap(optimizer().init)(arrays)
    course = _Course(arrays, state, arrays, np.full(count, np.inf), np.zeros(count, int), 0)
    kept, stages = training.stages.kept(name), training.stages
    course = course if kept is None else course.like(kept["course"])
    if kept is None or not kept["ended"]:
        chunk = _compiled(member, training.window, training.past)
        index = [jnp.asarray(x, jnp.int32) for x in (rows.training, rows.validation)]
        ended, saved = False, time.monotonic()
        while not ended:
            draws = jr.split(jr.fold_in(key, course.done), count)
            course = _after(course, *chunk(course.arrays, course.state, training.data, *index, draws))
            tell(course.done / iterations)
            stopped = bool((course.since >= patience).all()) or time.monotonic() > training.until
            ended = stopped or course.done >= iterations
            if ended or time.monotonic() > saved + KEEP_SECONDS:
                stages.keep(name, {"course": course.leaves(), "ended": ended})
                saved = time.monotonic()
    return eqx.combine(course.best, rest)


def _after(course: _Course, arrays: Member, state: optax.OptState, error: jax.Array) -> _Course:
    """After one more chunk, which ended with these validation errors (members,)."""
    errors = np.nan_to_num(np.asarray(error, float), nan=np.inf)
    better = errors < course.lowest * (1 - 1e-4)
    return _Course(
        arrays, state, _where(better, arrays, course.best), np.where(better, errors, course.lowest),
        np.where(better, 0, course.since + CHUNK), course.done + CHUNK,
    )  # fmt: skip


def _where(flags: np.ndarray, new, old):
    """For each member, the new arrays or the old ones."""
    shaped = lambda like: jnp.asarray(flags).reshape(-1, *(1,) * (like.ndim - 1))
    return jax.tree.map(lambda a, b: jnp.where(shaped(a), a, b), new, old)


def _compiled(member: Member, window: int, past: int) -> Callable:
    """`CHUNK` iterations, and the validation error after them, of all members at once."""
    _, rest = eqx.partition(member, eqx.is_inexact_array)

    def loss(arrays, data, rows, key):
        x, seen, more, low, high = data
        before, after = gather(x, rows, 1 - past, 0), gather(x, rows, 1, window)
        if key is not None:
            before = before + JITTER * jr.normal(key, before.shape, before.dtype)
        ahead = eqx.combine(arrays, rest).roll(before, gather(more, rows, 0, window), low[rows], high[rows])
        counted = gather(seen, rows, 1, window)
        return jnp.sum(optax.losses.huber_loss(ahead, after) * counted) / jnp.maximum(jnp.sum(counted), 1.0)

    def one(arrays, state, data, training, validation, key):
        def iterate(carry, key):
            arrays, state = carry
            draw, noise = jr.split(key)
            rows = training[jr.randint(draw, (BATCH,), 0, training.shape[0])]
            gradient = jax.grad(loss)(arrays, data, rows, noise)
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer().update(gradient, state, arrays)
                return (optax.apply_updates(arrays, updates), state), None

        (arrays, state), _ = lax.scan(iterate, (arrays, state), jr.split(key, CHUNK))
        return arrays, state, loss(arrays, data, validation, None)

    return jax.jit(jax.vmap(one, in_axes=(0, 0, None, 0, 0, 0)))
