"""A model of the user's own, `file.py:field`: their code runs, and what goes wrong in it is shown as theirs."""

import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._choices import UserError, pick


@dataclasses.dataclass(frozen=True)
class UserModel:
    """`field(t, y, delayed, params[, inputs])`, and what its file says of it: starts of `params`, how many `delays`."""

    field: Any
    params: dict[str, Any]
    delays: int | None


def is_file(model: str | None) -> bool:
    return model is not None and ".py" in model


def checksum(model: str | None) -> str | None:
    """SHA-256 of the file of a model of the user's own."""
    if not is_file(model):
        return None
    assert model is not None
    return hashlib.sha256(Path(model.rpartition(":")[0]).read_bytes()).hexdigest()


def load(model: str) -> UserModel:
    """The field that `file.py:name` names; beside it the file may have `params`, a dict, and `delays`, a number."""
    path, colon, name = model.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise UserError(f"--model {model}, expected file.py:name, with the name of a function in that file")
    file = Path(path)
    if not file.is_file():
        raise UserError(f"--model {model}: there is no file {file}")
    module = _run(file)
    functions = [key for key, value in vars(module).items() if callable(value) and getattr(value, "__module__", "") == _NAME]
    if not hasattr(module, name):
        pick(f"function in {file} called", name, functions or ["none"])
    field = getattr(module, name)
    if not callable(field) and not _is_mechanism(field):
        raise UserError(f"--model {model}: {name} is {type(field).__name__}, expected a function (t, y, delayed, params)")
    params, delays = getattr(module, "params", {}), getattr(module, "delays", None)
    if not isinstance(params, Mapping) or not (delays is None or isinstance(delays, int)):
        raise UserError(f"{file}: expected params, a dict of starting values, and delays, how many there are")
    for key, value in params.items():
        if not all(map(_is_number, value if isinstance(value, tuple | list) else [value])):
            raise UserError(f"{file}: params has {key} = {value!r}, expected where it starts, or (start, low, high)")
    return UserModel(field if _is_mechanism(field) else _with_params(field, model), dict(params), delays)


def _is_number(value: Any) -> bool:
    """Also one of NumPy or JAX; bounds may be infinite."""
    try:
        return not isinstance(value, str) and not math.isnan(float(value))
    except (TypeError, ValueError):
        return False


_NAME = "lagrax_user_model"


def _run(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(_NAME, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(sentence(error, file)) from None
    return module


def _is_mechanism(value: Any) -> bool:
    from ..series import Mechanism

    return isinstance(value, Mechanism)


def _with_params(field: Callable, model: str) -> Callable:
    """A field of (t, y, delayed) as one that also takes parameters."""
    try:
        positional = [
            parameter
            for parameter in inspect.signature(field).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
    except (TypeError, ValueError):
        return field
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in positional) or len(positional) in (4, 5):
        return field
    if len(positional) == 3:
        return functools.wraps(field)(lambda t, y, delayed, params: field(t, y, delayed))
    raise UserError(f"--model {model} takes {len(positional)} arguments, expected (t, y, delayed, params)")


def check(model: str, field: Callable, params: Mapping[str, Any], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Calls a field with (columns, delays, inputs) = `shape`, and gives back its parameters with their starts.

    A parameter that the field asks for and nobody has given a start begins at 1.
    """
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    columns, delays, inputs = shape
    asked = _Asked({name: _start(value) for name, value in params.items()})
    y = jnp.ones(columns)
    delayed = y if delays == 1 else (y,) * delays
    more = (jnp.ones(inputs),) if inputs else ()
    file = Path(model.rpartition(":")[0])
    try:
        found = eqx.filter_eval_shape(field, jnp.zeros(()), y, delayed, asked, *more)
    except Exception as error:
        raise UserError(sentence(error, file)) from None
    leaves = jax.tree.leaves(found)
    if len(leaves) != 1 or getattr(leaves[0], "shape", None) != (columns,):
        shapes = ", ".join(str(getattr(leaf, "shape", type(leaf).__name__)) for leaf in leaves) or "nothing"
        raise UserError(f"--model {model} returned {shapes}, expected the derivative of the state, of shape ({columns},)")
    return {**{name: 1.0 for name in asked.added}, **params}


def _start(value: Any) -> Any:
    return value[0] if isinstance(value, tuple | list) else value


class _Asked(dict):
    """Parameters that remembers which were asked for without being there."""

    def __init__(self, given: Mapping[str, Any]):
        super().__init__(given)
        self.added: list[str] = []

    def __missing__(self, name: str) -> float:
        self.added.append(name)
        self[name] = 1.0
        return 1.0


def sentence(error: BaseException, file: Path) -> str:
    """What the user's code raised, and where in their file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file.resolve() or
              Path(frame.filename) == file]  # fmt: skip
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    where = f"{file}, line {line}" if line else str(file)
    return f"the model in {where} raised {type(error).__name__}: {_said(error)[:300]}"


def _said(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return " ".join(error.msg.split())
    if type(error).__name__.startswith("Tracer") or type(error).__name__ == "ConcretizationTypeError":
        return "JAX knows no numbers while it compiles, so write jnp.exp for np.exp and jnp.where for if (jax.numpy as jnp)"
    return " ".join(str(error).split()).replace("'_Asked' object", "'dict' object")


def explained(error: Exception, model: str | None) -> str:
    """A mistake that showed only while fitting: the user's, if it came from their file, else what lagrax says of it."""
    if not is_file(model):
        return str(error)
    assert model is not None
    file = Path(model.rpartition(":")[0])
    inside = any(Path(frame.filename) == file.resolve() for frame in traceback.extract_tb(error.__traceback__))
    return sentence(error, file) if inside else str(error)
