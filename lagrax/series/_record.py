"""One series in transformed coordinates, and what can be rolled out from any of its rows."""

import abc

import equinox as eqx
import numpy as np


class Record(eqx.Module):
    """A series: times `t` (n,), transformed values `seen` (n, d) with NaN where missing and `u` (n, d) without gaps, and
    `inputs` (n, k) or None, and the row `train` at which the hold-out begins."""

    t: np.ndarray
    seen: np.ndarray
    u: np.ndarray
    inputs: np.ndarray | None
    train: int

    @property
    def step(self) -> float:
        """The usual time between two samples."""
        return float(np.median(np.diff(self.t)))

    def training(self) -> "Record":
        """The part before the hold-out."""
        inputs = None if self.inputs is None else self.inputs[: self.train]
        return Record(self.t[: self.train], self.seen[: self.train], self.u[: self.train], inputs, self.train)

    def extended(self, rows: int) -> "Record":
        """With so many rows of nothing behind its end; inputs stay at their last value."""
        t = self.t[-1] + self.step * np.arange(1, rows + 1)
        nothing = np.full((rows, self.u.shape[1]), np.nan)
        inputs = None if self.inputs is None else np.concatenate([self.inputs, np.repeat(self.inputs[-1:], rows, axis=0)])
        u = np.concatenate([self.u, np.repeat(self.u[-1:], rows, axis=0)])
        return Record(np.concatenate([self.t, t]), np.concatenate([self.seen, nothing]), u, inputs, self.train)

    def limits(self, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For forecasts from each origin, (origins, d): half the range of what is known there beyond its ends.

        Known are the training part and all rows up to the origin: a series that grows may go on to grow.
        """
        known = np.maximum(origins, self.train - 1)
        low, high = np.minimum.accumulate(self.u)[known], np.maximum.accumulate(self.u)[known]
        reach = 0.5 * (high - low)
        return low - reach, high + reach

    def inside(self, ahead: np.ndarray, origins: np.ndarray) -> np.ndarray:
        """Forecasts (origins, h, d) kept within these limits: no model may run off to infinity."""
        low, high = (limit[:, None] for limit in self.limits(origins))
        return np.clip(np.nan_to_num(ahead, nan=np.inf, posinf=np.inf, neginf=-np.inf), low, high)


def filled(t: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y (n, d) with straight lines across the gaps of each column; gaps at the ends repeat the nearest value."""
    seen = ~np.isnan(y)
    columns = [np.interp(t, t[ok], column[ok]) if not ok.all() else column for column, ok in zip(y.T, seen.T, strict=True)]
    return np.stack(columns, axis=1)


class AbstractRoll(eqx.Module):
    """Something that forecasts from the rows of a record."""

    @abc.abstractmethod
    def ahead(self, record: Record, origins: np.ndarray, horizon: int) -> np.ndarray:
        """Transformed forecasts (origins, horizon, d), from the rows up to each origin, itself included."""
