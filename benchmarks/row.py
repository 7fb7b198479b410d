"""A row of the table: two times, two errors, a target."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Side:
    """One of the two programs compared: its time in seconds (of each repetition) and its error, if it has one."""

    seconds: np.ndarray
    error: float | None = None

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    def as_json(self) -> dict[str, Any]:
        low, high = np.quantile(self.seconds, [0.25, 0.75])
        return {"median": self.median, "quartiles": [float(low), float(high)], "error": self.error}


@dataclass(frozen=True)
class Faster:
    """The peer is to take at least `limit` times as long as lagrax."""

    limit: float

    def ratio(self, lagrax: float, peer: float) -> float:
        return peer / lagrax

    def met(self, ratio: float) -> bool:
        return ratio >= self.limit

    def describe(self) -> str:
        return f"≥ {self.limit:g}× faster"


@dataclass(frozen=True)
class AtMost:
    """lagrax is to take at most `limit` times as long as what it is compared with."""

    limit: float

    def ratio(self, lagrax: float, peer: float) -> float:
        return lagrax / peer

    def met(self, ratio: float) -> bool:
        return 0 < ratio <= self.limit

    def describe(self) -> str:
        return f"≤ {self.limit:g}× the time"


@dataclass(frozen=True)
class Row:
    """One measured comparison. `unit` is what the times are of, `quantity` what the errors are of."""

    name: str
    what: str
    peer: str
    target: Faster | AtMost
    lagrax: Side
    other: Side
    note: str
    unit: str = "run"
    quantity: str | None = None
    extra: dict[str, Any] | None = None

    @property
    def ratio(self) -> float:
        return self.target.ratio(self.lagrax.median, self.other.median)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.what,
            "peer": self.peer,
            "target": self.target.describe(),
            "ratio": self.ratio,
            "met": self.target.met(self.ratio),
            "unit": self.unit,
            "seconds": {"lagrax": self.lagrax.as_json(), "peer": self.other.as_json()},
            "quantity": self.quantity,
            "note": self.note,
            "extra": self.extra or {},
        }
