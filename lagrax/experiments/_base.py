"""What an experiment is: what it is asked for, what it hands back."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import diffrax as dfx

from .._adjoint import AbstractAdjoint
from .._choices import UserError as UserError


@dataclasses.dataclass(frozen=True)
class Preset:
    """One size of an experiment: how many seeds, which solver, and the experiment's own numbers.

    `numbers` are JSON values (iterations, points, sizes); `--set iterations=100` replaces one of them.
    """

    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seeds: int = 1
    solver: str = "tsit5"
    tolerance: float = 1e-6


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `run` gets: the preset with the user's options applied, and where to write.

    `tolerance` is meant as rtol and atol. With `resume`, `folder` holds what an interrupted run left there. Without
    `progress` nothing is to be printed.
    """

    preset: str
    seeds: int
    numbers: Mapping[str, Any]
    adjoint_name: str
    adjoint: AbstractAdjoint
    solver_name: str
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
    open: str = "not comparable"


@dataclasses.dataclass(frozen=True)
class Figure:
    """`<stem>.png` and `<stem>.pdf` in the run's folder; made by `_figures.save`."""

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
    """What `run` hands back. `metrics` becomes metrics.json: final numbers per model and seed, see `spread`."""

    metrics: dict[str, Any]
    claims: list[Claim]
    figures: list[Figure]
    tables: list[Table]
    notes: list[str] = dataclasses.field(default_factory=list)
    """Paragraphs for the report: what was chosen where the paper is silent, what did not reproduce and why."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One result of the paper.

    - `name`: on the command line, `mackey-glass` for the module `mackey_glass`.
    - `title`, `about`: a headline, and one or two sentences on what is done and what the paper says of it.
    - `presets`: `smoke` (seconds), `default` (minutes on two cores) and `paper` (the paper's own numbers);
      perhaps others.
    - `run`: does it all, and writes nothing outside of `settings.folder`.
    - `limits`: the smallest and the largest value of numbers for which more than 0 is not enough.
    - `check`: raises a `UserError` for numbers that it cannot serve together, before anything is written.
    - `x64`: whether it runs in double precision; single by default, as in the paper.
    """

    name: str
    title: str
    about: str
    presets: Mapping[str, Preset]
    run: Callable[[Settings], Outcome]
    limits: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    check: Callable[[Mapping[str, Any]], None] = lambda numbers: None
    x64: bool = False


def spread(values: Iterable[float]) -> dict[str, Any]:
    """The numbers of several seeds as they stand in metrics.json: each, their median, smallest and largest."""
    numbers = [float(value) for value in values]
    return {"seeds": numbers, "median": statistics.median(numbers), "min": min(numbers), "max": max(numbers)}
