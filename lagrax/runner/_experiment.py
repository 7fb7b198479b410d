"""What an experiment is, what it is asked for, and what it hands back: numbers, statements of the paper with a verdict each,
figures, tables."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import diffrax as dfx

from .._adjoint import AbstractAdjoint
from ._numbers import Numbers

N = TypeVar("N", bound=Numbers)
NOT_COMPARABLE = "not comparable"


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
