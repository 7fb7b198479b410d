"""What an experiment is, what it is asked for, and what it hands back.

Its own numbers are a frozen dataclass whose fields know their limits, so that each of its values is possible. It hands back
numbers, statements of the paper with a verdict each, figures, tables.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, get_args, get_origin

import diffrax as dfx

from .._adjoint import AbstractAdjoint
from .._choices import UsageError, pick

NOT_COMPARABLE = "not comparable"
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


N = TypeVar("N", bound=Numbers)


@dataclasses.dataclass(frozen=True)
class Preset(Generic[N]):
    """One size of an experiment: its numbers, how many seeds, which solver; `takes` says about how long on two cores."""

    numbers: N
    seeds: int = 1
    solver: str = "tsit5"
    tolerance: float = 1e-6
    takes: str = "seconds"


@dataclasses.dataclass(frozen=True)
class Settings(Generic[N]):
    """What `run` gets: the preset with the user's options applied, and where to write.

    `tolerance` is meant as rtol and atol. With `resume`, `folder` holds what an interrupted run left there. Without
    `progress` nothing is to be printed.
    """

    preset: str
    seeds: int
    numbers: N
    adjoint: AbstractAdjoint
    solver: dfx.AbstractSolver
    tolerance: float
    folder: Path
    resume: bool = False
    progress: bool = True

    @property
    def controller(self) -> dfx.PIDController:
        return dfx.PIDController(rtol=self.tolerance, atol=self.tolerance)

    @property
    def stepping(self) -> dict[str, Any]:
        """The keyword arguments of a model of `lagrax.nn` that say how it is solved."""
        return {"solver": self.solver, "stepsize_controller": self.controller}

    @property
    def solving(self) -> dict[str, Any]:
        """Those, and how it is differentiated."""
        return {**self.stepping, "adjoint": self.adjoint}

    def say(self, text: str) -> None:
        """A line of progress for the terminal."""
        if self.progress:
            print(text, flush=True)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A row of "the paper says / we measured / reproduced or not"; `reproduced=None` where there is no verdict, and `open`
    says why: by default the preset does not allow one."""

    paper: str
    measured: str
    reproduced: bool | None
    open: str = NOT_COMPARABLE

    @property
    def verdict(self) -> str:
        """Such as "✓ reproduced" or "– not comparable"."""
        return {True: "✓ reproduced", False: "✗ not reproduced", None: f"– {self.open}"}[self.reproduced]


@dataclasses.dataclass(frozen=True)
class Figure:
    """`<stem>.png` and `<stem>.pdf` in the run's folder; made by `figures.save`."""

    stem: str
    caption: str


@dataclasses.dataclass(frozen=True)
class Table:
    """Shown in the terminal and in the report. Cells are formatted text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What `run` hands back. `metrics` becomes metrics.json: final numbers per model and seed, see `of_seeds`."""

    metrics: dict[str, Any]
    claims: list[Claim]
    figures: list[Figure]
    tables: list[Table]
    notes: list[str] = dataclasses.field(default_factory=list)
    """Paragraphs for the report: what was chosen where the paper is silent, what did not reproduce and why."""

    def comparable_by(self, experiment: str) -> str:
        """The command that would give verdicts, if there are claims that a run of this size cannot be compared with."""
        lacking = any(claim.reproduced is None and claim.open == NOT_COMPARABLE for claim in self.claims)
        return f"lagrax reproduce {experiment}" if lacking else ""


@dataclasses.dataclass(frozen=True)
class Experiment(Generic[N]):
    """One result of the paper.

    - `name`: on the command line, `mackey-glass` for the module `mackey_glass`.
    - `title`, `about`: a headline, and one or two sentences on what is done and what the paper says of it.
    - `presets`: `smoke` (seconds), `default` (minutes on two cores) and `paper` (the paper's own numbers);
      perhaps others.
    - `run`: does it all, and writes nothing outside of `settings.folder`.
    - `x64`: whether it runs in double precision; single by default, as in the paper.
    """

    name: str
    title: str
    about: str
    presets: Mapping[str, Preset[N]]
    run: Callable[[Settings[N]], Outcome]
    x64: bool = False


def of_seeds(values: Iterable[float]) -> dict[str, Any]:
    """The numbers of several seeds as they stand in metrics.json: each, their median, smallest and largest."""
    numbers = [float(value) for value in values]
    return {"seeds": numbers, "median": statistics.median(numbers), "min": min(numbers), "max": max(numbers)}


def range_of(numbers: Mapping[str, Any]) -> str:
    """What `of_seeds` made, in a cell of a table: median (lowest – highest)."""
    low, high = numbers["min"], numbers["max"]
    digits = 3 if f"{low:.2g}" == f"{high:.2g}" else 2  # a narrow range is not to look like none
    return f"{numbers['median']:.3g} ({low:.{digits}g}\u00a0–\u00a0{high:.{digits}g})"


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
