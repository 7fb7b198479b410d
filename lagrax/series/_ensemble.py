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

from ._neural import Member, gather

BLOCKS, BATCH, JITTER = 10, 64, 0.05
RATE, DELAY_RATE, DECAY, CLIP = 4e-3, 3.0, 1e-3, 1.0
CHUNK = 25
MOST_VALIDATED = 400


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


def train(
    member: Member,
    data: tuple,
    rows: Split,
    window: int,
    past: int,
    *,
    key: jax.Array,
    iterations: int,
    patience: int,
    until: float,
    tell: Callable[[float], None],
) -> tuple[Member, np.ndarray]:
    """The members of the lowest validation error, and these errors (members,). Ends when none improves for `patience`."""
    chunk = _compiled(member, window, past)
    arrays, rest = eqx.partition(member, eqx.is_inexact_array)
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes whole numbers and others
        state = jax.vmap(optimizer().init)(arrays)
    best, lowest = arrays, np.full(rows.training.shape[0], np.inf)
    since = np.zeros(len(lowest), int)
    index = [jnp.asarray(x, jnp.int32) for x in (rows.training, rows.validation)]
    for done in range(0, iterations, CHUNK):
        arrays, state, error = chunk(arrays, state, data, *index, jr.split(jr.fold_in(key, done), len(lowest)))
        error = np.nan_to_num(np.asarray(error, float), nan=np.inf)
        better = error < lowest * (1 - 1e-4)
        best = _where(better, arrays, best)
        lowest, since = np.where(better, error, lowest), np.where(better, 0, since + CHUNK)
        tell((done + CHUNK) / iterations)
        if (since >= patience).all() or time.monotonic() > until:
            break
    return eqx.combine(best, rest), lowest


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
        ahead = eqx.combine(arrays, rest).roll(before, gather(more, rows, 0, window), low, high)
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
