"""The compiled part of training: many iterations in one dispatch, and the minibatches that they take.

Every epoch is a new shuffle, drawn from the key alone. The samples of epoch 0, those of epoch 1, and so on form one endless
stream, which is cut into batches of equal size. An epoch whose size is no multiple of the batch's ends inside a batch, and
the next epoch's shuffle fills the rest: every epoch has every sample exactly once, no sample is dropped and no batch is
smaller.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._seeds import over_seeds

# Iterations per dispatch at most: the size of the memory in which a dispatch collects its metrics.
CAPACITY = 4096
RESERVED = ("loss", "iteration", "seconds")


class Task(eqx.Module):
    """What stays the same during training, apart from arrays."""

    loss: Callable
    optimizer: optax.GradientTransformationExtraArgs
    rest: PyTree  # of the model: what is not an array
    seeds: int | None
    data_per_seed: bool
    in_turn: bool  # one seed after the other, not all in one batch
    batch_size: int | None
    size: int  # samples
    mesh: Mesh | None  # the devices that the data is spread over, if it is

    @property
    def everywhere(self) -> NamedSharding | None:
        """Where the state is: on all of these devices."""
        return None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec())

    def each_seed(self, function: Callable, *mapped: bool) -> Callable:
        """`function` mapped over the seeds, if there is an axis of them. `mapped`: which of its arguments have it."""
        if self.seeds is None:
            return function
        return over_seeds(function, *mapped, in_turn=self.in_turn or self.seeds == 1)


class State(eqx.Module):
    """What training changes. Every array has a leading seed axis if several seeds train at once."""

    parameters: PyTree[Array]
    optimizer: PyTree
    best: PyTree  # the parameters of the lowest loss so far; None with minibatches, whose losses do not compare
    best_loss: Float[Array, "*seeds"] | None
    alive: Bool[Array, "*seeds"]
    diverged: Int[Array, "*seeds"]  # the iteration that went wrong, or -1


def initial_state(task: Task, parameters: PyTree[Array]) -> State:
    # The loop reuses the memory of its state, so nothing of it may be the caller's, or be there twice.
    copy = lambda tree: jax.tree.map(lambda x: jnp.array(x, x.dtype) if eqx.is_array(x) else x, tree)
    shape = () if task.seeds is None else (task.seeds,)
    full = task.batch_size is None
    with jax.numpy_dtype_promotion("standard"):
        optimizer = task.each_seed(task.optimizer.init, True)(parameters)
    return State(
        parameters=copy(parameters),
        optimizer=copy(optimizer),
        best=copy(parameters) if full else None,
        best_loss=jnp.full(shape, jnp.inf) if full else None,
        alive=jnp.full(shape, True),
        diverged=jnp.full(shape, -1, jnp.int32),
    )


def compile_chunk(task: Task, *arguments: Any) -> Callable:
    """Compiles `chunk(state, constants, data, keys, start, count, epoch, position)` for arguments like these.

    It returns the state after `count` iterations, rows of metrics of which the first `done` are filled, `done`, and
    whether any seed is alive. The number of iterations is not known to the compiler, so that all chunks run the same
    machine code: how a run is cut into chunks cannot change its numbers.
    """

    def chunk(state, constants, data, keys, start, count, epoch, position):
        iterate = _iterate(task, constants, data, keys)
        shuffle = lambda epoch: task.each_seed(lambda k: shuffled(jr.fold_in(k, 1), epoch, task.size), True)(keys)
        stream = Stream(shuffle(epoch), epoch, position) if task.batch_size else None
        _, row = jax.eval_shape(iterate, state, stream, start)
        rows = jax.tree.map(lambda x: jnp.zeros((CAPACITY, *x.shape), x.dtype), row)

        def body(carry):
            done, state, stream, rows = carry
            state, row = iterate(state, stream, start + done)
            rows = jax.tree.map(lambda xs, x: xs.at[done].set(x), rows, row)
            if stream is not None:
                stream = advance(stream, task.batch_size, task.size, shuffle)
            return done + 1, state, stream, rows

        going = lambda carry: (carry[0] < count) & jnp.any(carry[1].alive)
        done, state, _, rows = lax.while_loop(going, body, (jnp.zeros((), jnp.int32), state, stream, rows))
        return state, rows, done, jnp.any(state.alive)

    return jax.jit(chunk, donate_argnums=0, out_shardings=task.everywhere).lower(*arguments).compile()


def _iterate(task: Task, constants: PyTree, data: PyTree, keys: Array) -> Callable:
    """One iteration of all seeds: `(state, stream, iteration) -> (state, row)`."""

    def one(state, constants, data, key, index, iteration):
        batch = data if index is None else take(data, index)
        if index is not None and task.mesh is not None:
            batch = lax.with_sharding_constraint(batch, NamedSharding(task.mesh, PartitionSpec(task.mesh.axis_names)))
        return _step(task, state, constants, batch, jr.fold_in(jr.fold_in(key, 0), iteration), iteration)

    def iterate(state, stream, iteration):
        index = None if stream is None else indices(stream, task.batch_size)
        mapped = task.each_seed(one, True, True, task.data_per_seed, True, True, False)
        return mapped(state, constants, data, keys, index, iteration)

    return iterate


def _step(task: Task, state: State, constants: PyTree, batch: PyTree, key: Array, iteration: Int[Array, ""]):
    """One iteration of one seed. What is not finite any more is not taken over."""

    def objective(parameters):
        return _checked(task.loss(eqx.combine(parameters, constants, task.rest), batch, key))

    (loss, metrics), gradient = jax.value_and_grad(objective, has_aux=True)(state.parameters)
    # Optax itself mixes integers and floats.
    with jax.numpy_dtype_promotion("standard"):
        updates, optimizer = task.optimizer.update(
            gradient,
            state.optimizer,
            state.parameters,
            value=loss,
            grad=gradient,
            value_fn=lambda parameters: objective(parameters)[0],
        )
        parameters = optax.apply_updates(state.parameters, updates)
    finite = [jnp.all(jnp.isfinite(x)) for x in (loss, *jax.tree.leaves(parameters))]
    alive = state.alive & jnp.all(jnp.stack(finite))
    row = {"loss": loss, **metrics}
    row = jax.tree.map(lambda x: jnp.where(state.alive, x, jnp.array(_missing(x), x.dtype)), row)
    best, best_loss = state.best, state.best_loss
    if best_loss is not None:
        value = loss.astype(best_loss.dtype)
        better = alive & (value < best_loss)
        best, best_loss = _where(better, state.parameters, best), jnp.where(better, value, best_loss)
    return State(
        parameters=_where(alive, parameters, state.parameters),
        optimizer=_where(alive, optimizer, state.optimizer),
        best=best,
        best_loss=best_loss,
        alive=alive,
        diverged=jnp.where(state.alive & ~alive, iteration, state.diverged),
    ), row


def _where(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b) if eqx.is_array(b) else b, new, old)


def _missing(x: Array) -> float | int:
    return jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0


def _checked(output: Any) -> tuple[Array, dict[str, Array]]:
    """What the loss returned, if it is what it should be."""
    if not (isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], dict)):
        raise TypeError(
            f"loss returned a {type(output).__name__}, expected a scalar and a dict of metrics: return value, {{}} if there "
            "are none"
        )
    loss, metrics = output
    if jnp.shape(loss) != () or not jnp.issubdtype(jnp.result_type(loss), jnp.floating):
        raise TypeError(
            f"loss returned {jnp.result_type(loss)}{list(jnp.shape(loss))} as its value, expected a real scalar: take a mean"
        )
    taken = sorted(set(metrics) & set(RESERVED))
    if taken:
        raise ValueError(f"loss returned a metric named {taken[0]!r}, expected other names than {RESERVED}: rename it")
    return jnp.asarray(loss), {name: jnp.asarray(value) for name, value in metrics.items()}


# --- minibatches ------------------------------------------------------------------------------------------------------


class Stream(eqx.Module):
    """A place in the stream: the shuffles of this epoch and the next, and how much of this one is used up.

    `order` has shape (2 · size,), or (seeds, 2 · size).
    """

    order: Int[Array, "*seeds samples"]
    epoch: Int[Array, ""]
    position: Int[Array, ""]


def start_of(iteration: int, batch_size: int | None, size: int) -> tuple[int, int]:
    """The epoch, and the position in it, at which the batch of an iteration begins."""
    return divmod(iteration * batch_size, size) if batch_size else (0, 0)


def shuffled(key: Array, epoch: Int[Array, ""], size: int) -> Int[Array, " samples"]:
    """The samples in the order of this epoch and, after them, of the next."""
    one = lambda epoch: jr.permutation(jr.fold_in(key, epoch), size).astype(jnp.int32)
    return jnp.concatenate([one(epoch), one(epoch + 1)])


def indices(stream: Stream, batch_size: int) -> Int[Array, "*seeds batch"]:
    return lax.dynamic_slice_in_dim(stream.order, stream.position, batch_size, axis=-1)


def advance(stream: Stream, batch_size: int, size: int, shuffle: Callable) -> Stream:
    """The stream one batch further. `shuffle(epoch)` is called where an epoch begins."""
    position = stream.position + batch_size
    over = position >= size
    epoch = stream.epoch + over.astype(jnp.int32)
    order = lax.cond(over, lambda: shuffle(epoch), lambda: stream.order)
    return Stream(order, epoch, jnp.where(over, position - size, position))


def take(data: PyTree, index: Int[Array, " batch"]) -> PyTree:
    """The samples at these indices of the leading axis of every array."""
    return jax.tree.map(lambda x: x[index], data)
