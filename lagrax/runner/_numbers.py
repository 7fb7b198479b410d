"""An experiment's own numbers: a frozen dataclass whose fields know their limits, so that each of its values is possible."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Self, get_args, get_origin

from .._choices import UsageError, pick

_LARGEST = 2**31 - 1  # which compiled loops count up to
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", tuple: "a list of whole numbers"}


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a number may be: from `least` (None: more than 0) to `most`; a word, one of `choices` if there are any."""

    about: str
    least: float | None = None
    most: float = _LARGEST
    choices: tuple[str, ...] = ()


def number(default: Any, about: str, **limits: Any) -> Any:
    """A field of `Numbers`: the paper's value, and what it is, with its unit. The rest are `Limits`."""
    return dataclasses.field(default=default, metadata={"limits": Limits(about, **limits)})


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers that an experiment has of its own; subclasses are frozen dataclasses whose fields are made by `number`.

    Every instance has been checked: the type of each field (bool, int, float, str or tuple[int, ...]) and its limits, then
    what `check` says of them together.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _accepted(field, getattr(self, field.name)))
        self.check()

    def check(self) -> None:
        """Raises a `UsageError` for numbers that do not go together."""

    def check_installed(self) -> None:
        """Raises a `UserError` if a package that a run with these numbers needs is missing. Asked before a run, not where
        an experiment is only described."""

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def limits(cls) -> dict[str, Limits]:
        return {field.name: field.metadata["limits"] for field in dataclasses.fields(cls)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Those of a config.json, with all of their names; version 0.1.0 wrote them with spaces."""
        values = {_plain(name): value for name, value in saved.items()}
        if set(values) != set(cls.names()):
            raise UsageError(f"its numbers are {', '.join(values)}, expected {', '.join(cls.names())}")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    def changed(self, given: Mapping[str, str], experiment: str) -> Self:
        """These numbers with some replaced, as `--set NAME=VALUE` gives them: as JSON, a list without brackets too."""
        fields = {field.name: field for field in dataclasses.fields(self)}
        find = lambda name: pick(f"number of {experiment} called", _plain(name), fields or ["none"])
        names = {find(name): text for name, text in given.items()}
        return dataclasses.replace(self, **{name: _read(text, fields[name].type) for name, text in names.items()})


def shown(value: Any) -> str:
    """A number as it is typed."""
    if isinstance(value, str):
        return value
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _plain(name: str) -> str:
    """`learning rate` and `learning-rate` are `learning_rate`."""
    return name.strip().replace(" ", "_").replace("-", "_")


def _read(text: str, kind: Any) -> Any:
    if kind is str:
        return text
    try:
        return json.loads(f"[{text}]" if get_origin(kind) is tuple and not text.startswith("[") else text)
    except (ValueError, RecursionError):
        return text


def _accepted(field: dataclasses.Field, value: Any) -> Any:
    """`value` as the field has it, if it is of its type and within its limits."""
    kind: Any = get_origin(field.type) or field.type
    if kind is tuple and isinstance(value, list):
        value = tuple(value)
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 1e300 else math.inf
    item_kind = get_args(field.type)[0] if kind is tuple else kind
    items = value if kind is tuple and isinstance(value, tuple) else (value,)
    if type(value) is not kind or not items or any(type(item) is not item_kind for item in items):
        text = value if isinstance(value, str) else repr(value)
        short = text if len(text) <= 40 else f"{text[:40]}…"
        raise UsageError(f"{field.name} = {short}, expected {_KINDS[kind]}, such as {shown(field.default)}")
    for item in items:
        _check_limits(field.name, item, field.metadata["limits"])
    return value


def _check_limits(name: str, value: Any, limits: Limits) -> None:
    if isinstance(value, str):
        if limits.choices:
            pick(name.replace("_", " "), value, limits.choices)
    elif not isinstance(value, bool):
        enough = value > 0 if limits.least is None else value >= limits.least
        if not (enough and value <= limits.most):
            whole = "at least 1" if isinstance(value, int) else "more than 0"
            least = whole if limits.least is None else f"at least {limits.least:g}"
            raise UsageError(f"{name} = {value}, expected {least} and at most {_plainly(limits.most)}")


def _plainly(most: float) -> str:
    return str(most) if isinstance(most, int) else f"{most:g}"
