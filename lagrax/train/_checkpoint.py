"""Checkpoints: all that a run needs to go on, in one file of its folder that is replaced as a whole."""

import dataclasses
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PyTree

from ..saving._files import sole_writer
from ..saving._persist import ModelFileError, load, save
from ._hosts import Processes, on_host, readable

CHECKPOINT, METRICS = "checkpoint.lagrax", "metrics.jsonl"
_VERSION = 2


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or belongs to another run; the message says why."""


@dataclasses.dataclass
class Checkpoint:
    """A run up to an iteration. Arrays are NumPy's, apart from random keys."""

    made_of: dict[str, Any]  # what the run was started with, see `describe`
    iteration: int
    seconds: float
    state: list[Any]  # leaves of the state
    history: dict[str, np.ndarray]
    snapshot_iterations: list[int]
    snapshots: list[list[Any]]  # leaves of the parameters
    evaluation_iterations: list[int]
    evaluations: dict[str, np.ndarray]  # an entry per evaluation
    validated: list[Any] | None = None  # leaves of the parameters of the lowest validation; files of version 0.1 have none


# --- what a run is made of --------------------------------------------------------------------------------------------


def describe(model: PyTree, optimizer: PyTree, data: PyTree, **settings: Any) -> dict[str, Any]:
    """The shapes of everything and a checksum of the data: what has to be the same for a run to go on."""
    arrays = {"model": _shapes(model), "optimizer": _shapes(optimizer), "data": _shapes(data)}
    return arrays | {"checksum of the data": checksum(data)} | settings


def _shapes(tree: PyTree) -> dict[str, str]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): f"{x.dtype}[{','.join(map(str, x.shape))}]" for path, x in leaves}


def checksum(tree: PyTree) -> int | None:
    """Of all arrays, or None if other processes hold a part of them."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    if not all(readable(leaf) for leaf in leaves):
        return None
    total = 0
    for leaf in map(on_host, leaves):
        plain = leaf if isinstance(leaf, np.ndarray) else np.asarray(jr.key_data(leaf))
        total = zlib.crc32(np.ascontiguousarray(plain).view(np.uint8).reshape(-1).data, total)
    return total


def check_same(path: str, saved: dict[str, Any], given: dict[str, Any]) -> None:
    """Raises if a checkpoint was not made of what is given now, naming the first difference."""
    for name in [*given, *saved]:
        old, new = saved.get(name), given.get(name)
        if old == new or (name == "checksum of the data" and None in (old, new)):
            continue
        what = name
        if isinstance(old, dict) and isinstance(new, dict):
            place = next(place for place in [*new, *old] if old.get(place) != new.get(place))
            what, old, new = f"{name}{place}", old.get(place, "absent"), new.get(place, "absent")
        raise CheckpointError(
            f"the checkpoint {path} was made with another {name} ({what}: {old}, now {new}), expected the same: give what "
            "the run was started with, or choose another folder"
        )


# --- the file ---------------------------------------------------------------------------------------------------------


@contextmanager
def prepared(folder: str, resume: bool) -> Iterator[None]:
    """Makes the folder, and keeps others from writing into it. Raises if it cannot be or, without `resume`, holds a run."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(
            f"the folder {folder} cannot be written ({error.strerror}), expected one that can: choose another folder"
        ) from None
    with sole_writer(folder):
        held = [name for name in (CHECKPOINT, METRICS) if os.path.exists(os.path.join(folder, name))]
        if held and not resume:
            raise FileExistsError(
                f"the folder {folder} already holds a run ({held[0]}), expected a new one: pass resume=True to go on with "
                "it, or choose another folder"
            )
        yield


@contextmanager
def saying_how_to_go_on(path: str | None) -> Iterator[None]:
    """Around writing a file: an error of the disk says what to do about it."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"{path} cannot be written ({error.strerror}), expected a disk with room that can be written: put that right, "
            "then resume the run, which goes on from its last checkpoint"
        ) from None


def write(folder: str, checkpoint: Checkpoint) -> None:
    fields = {field.name: getattr(checkpoint, field.name) for field in dataclasses.fields(checkpoint)}
    path = os.path.join(folder, CHECKPOINT)
    with saying_how_to_go_on(path):
        save(path, {"checkpoint version": _VERSION, **fields})


def read(folder: str) -> Checkpoint | None:
    """The folder's checkpoint, or None if there is none yet."""
    path = os.path.join(folder, CHECKPOINT)
    if not os.path.exists(path):
        return None
    try:
        content = load(path)
    except (ModelFileError, OSError) as error:
        raise CheckpointError(
            f"the checkpoint cannot be read ({error}), expected one that fit wrote: restore it, or choose another folder"
        ) from None
    names = {field.name for field in dataclasses.fields(Checkpoint)}
    known = isinstance(content, dict) and content.pop("checkpoint version", None) == _VERSION
    if not known or set(content) | {"validated"} != names:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version of lagrax, expected one that fit wrote: choose another folder"
        )
    return Checkpoint(**content)


def read_together(folder: str, processes: Processes) -> Checkpoint | None:
    """The checkpoint in the folder of process 0, for all processes: theirs need not be on the same disk."""
    if not processes.several:
        return read(folder)
    found, content = None, b""
    with processes.safely("reading the checkpoint"):
        found = read(folder) if processes.writes else None
        if found is not None:
            with open(os.path.join(folder, CHECKPOINT), "rb") as file:
                content = file.read()
    content = processes.from_first(content)
    with processes.safely("copying the checkpoint"):
        return found if processes.writes or not content else _read_copy(content)


def _read_copy(content: bytes) -> Checkpoint | None:
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, CHECKPOINT), "wb") as file:
            file.write(content)
        return read(folder)


# --- arrays -----------------------------------------------------------------------------------------------------------


def leaves_on_host(tree: PyTree) -> list[Any]:
    return [on_host(leaf) for leaf in jax.tree.leaves(tree)]


def restored(leaves: list[Any], like: PyTree) -> PyTree:
    """Leaves from the host as the arrays of a PyTree like this one."""
    as_before = lambda leaf, old: jnp.array(leaf, old.dtype) if eqx.is_array(old) else old
    structure: Any = jax.tree.structure(like)
    olds = jax.tree.leaves(like)
    return jax.tree.unflatten(structure, [as_before(leaf, old) for leaf, old in zip(leaves, olds, strict=True)])
