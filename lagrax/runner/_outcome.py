"""What an experiment hands back: numbers, statements of the paper with a verdict each, figures, tables."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOT_COMPARABLE = "not comparable"


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


def of_seeds(values: Iterable[float]) -> dict[str, Any]:
    """The numbers of several seeds as they stand in metrics.json: each, their median, smallest and largest."""
    numbers = [float(value) for value in values]
    return {"seeds": numbers, "median": statistics.median(numbers), "min": min(numbers), "max": max(numbers)}


def range_of(numbers: Mapping[str, Any]) -> str:
    """What `of_seeds` made, in a cell of a table: median (lowest – highest)."""
    low, high = numbers["min"], numbers["max"]
    digits = 3 if f"{low:.2g}" == f"{high:.2g}" else 2  # a narrow range is not to look like none
    return f"{numbers['median']:.3g} ({low:.{digits}g}\u00a0–\u00a0{high:.{digits}g})"
