"""What `fit` is asked for, as one value that is checked when it is made; each mistake has its sentence."""

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import optax
from jax.sharding import Mesh
from jaxtyping import Array, PyTree


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of [`lagrax.train.fit`][], which says what they mean. Every instance is possible; only the sizes of
    arrays are looked at later, when these are on their devices."""

    model: PyTree
    loss: Callable
    data: PyTree
    optimizer: optax.GradientTransformation
    iterations: int
    key: Array
    batch_size: int | None
    stacked: bool
    data_stacked: bool
    in_turn: bool
    folder: str | os.PathLike | None
    resume: bool
    checkpoint_every: int | None
    snapshots: int | None
    evaluate: Callable | None
    evaluate_every: int | None
    validation: str | None
    patience: int | None
    until: float | None
    chunk: int | None
    progress: bool

    def __post_init__(self) -> None:
        if not _is_count(self.iterations):
            raise ValueError(f"iterations = {self.iterations!r}, expected a positive whole number: such as 1000")
        for name in ("batch_size", "checkpoint_every", "snapshots", "evaluate_every", "patience", "chunk"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise ValueError(f"{name} = {value!r}, expected a positive whole number or None: such as 10")
        if self.until is not None and not self.until > 0:
            raise ValueError(f"until = {self.until!r}, expected a positive number of seconds or None: such as 60.0")
        if self.resume and self.folder is None:
            raise ValueError("resume=True without a folder, expected the folder of the run: pass folder='...'")
        _check_evaluation(self.evaluate, self.evaluate_every)
        _check_validation(self.validation, self.patience, self.evaluate is not None)
        _check_loss(self.loss)
        _check_optimizer(self.optimizer, self.key)

    def same_everywhere(self) -> dict[str, Any]:
        """What all processes have to be given alike, apart from what a checkpoint is made of."""
        names = ("iterations", "chunk", "until", "checkpoint_every", "patience", "in_turn", "resume")
        return {name: getattr(self, name) for name in names} | {"folder (or none)": self.folder is None}


def _check_evaluation(evaluate: Any, every: int | None) -> None:
    if evaluate is not None and not callable(evaluate):
        raise ValueError(
            f"evaluate is a {type(evaluate).__name__}, expected a function of the model or None: pass a function"
        )
    if evaluate is not None and every is None:
        raise ValueError("evaluate without evaluate_every, expected both or none: pass evaluate_every=100, for instance")
    if evaluate is None and every is not None:
        raise ValueError(f"evaluate_every = {every} without evaluate, expected both or none: pass evaluate=..., or drop it")


def _check_validation(validation: Any, patience: int | None, evaluates: bool) -> None:
    if validation is not None and not (isinstance(validation, str) and evaluates):
        what = f"validation = {validation!r}" if evaluates else "validation without evaluate"
        raise ValueError(f"{what}, expected the name of something that evaluate returns: such as 'error'")
    if patience is not None and validation is None:
        raise ValueError(
            f"patience = {patience} without validation, expected to be told what should improve: pass validation='error', "
            "for instance"
        )


def _check_loss(loss: Any) -> None:
    """Raises for a loss that cannot be called with a model, a batch and a key."""
    if not callable(loss):
        raise ValueError(f"loss is a {type(loss).__name__}, expected a function: def loss(model, batch, key)")
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):  # of what is not written in Python
        return
    try:
        signature.bind(None, None, None)
    except TypeError as error:
        raise ValueError(
            f"loss{signature} cannot be called as loss(model, batch, key) ({error}), expected these three arguments: "
            "def loss(model, batch, key), and ignore what it has no use for"
        ) from None


def _check_optimizer(optimizer: Any, key: Any) -> None:
    """Raises for what is no optimiser, as `optax.adam` without its arguments, and for what is no random key."""
    if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
        given = getattr(optimizer, "__name__", type(optimizer).__name__)
        raise ValueError(f"optimizer is {given}, expected an Optax optimiser: pass such as optax.adam(1e-3)")
    if not eqx.is_array(key):
        raise ValueError(f"key is {key!r}, expected a random key: pass such as jax.random.key(0)")


def _is_count(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x > 0


def number_of_seeds(model: PyTree) -> int:
    """The length of the leading axis of the model's arrays."""
    return _common_length(model, 0, "model", "stacked=True needs a leading seed axis, as lagrax.train.stack makes")


def number_of_samples(data: PyTree, seeds: int | None, batch_size: int | None) -> int:
    """The length of the data's leading axis, after the seeds' if there is one; 0 if nothing is cut into batches."""
    if seeds is not None:
        found = _common_length(data, 0, "data", "data_stacked=True needs a leading seed axis")
        if found != seeds:
            raise ValueError(f"the data has {found} seeds and the model {seeds}, expected as many: stack data for each seed")
    if batch_size is None:
        return 0
    size = _common_length(data, 0 if seeds is None else 1, "data", "batches are cut from the samples' axis")
    if batch_size > size:
        raise ValueError(f"batch_size = {batch_size} with {size} samples, expected at most as many: pass None for all")
    return size


def check_divides(mesh: Mesh | None, batch_size: int | None) -> None:
    if mesh is not None and batch_size is not None and batch_size % mesh.size:
        raise ValueError(f"batch_size = {batch_size} with data on {mesh.size} devices, expected a multiple: change either")


def _common_length(tree: PyTree, axis: int, name: str, why: str) -> int:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    lengths = {jax.tree_util.keystr(path): x.shape[axis] if x.ndim > axis else None for path, x in leaves}
    values = set(lengths.values())
    if len(values) != 1 or None in values:
        first = next(iter(lengths.values()), None)
        odd = next((f"{name}{path} has {n}" for path, n in lengths.items() if n is None or n != first), f"{name} has none")
        raise ValueError(f"{odd} entries along axis {axis}, expected arrays with equally many: {why}")
    return next(iter(values))  # type: ignore[return-value]
