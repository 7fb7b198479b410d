"""One series in transformed coordinates: its gaps, its period, and what can be rolled out from any of its rows."""

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


def dominant_period(u: np.ndarray) -> float | None:
    """In samples: the lag of the highest peak of the autocorrelation behind its first zero, or None if nothing oscillates.

    `u` (n, d) without gaps, equally spaced. The autocorrelation, and not the spectrum: that of a cycle that is no sine may
    have its highest line at a harmonic.
    """
    n = len(u)
    x = u - np.polynomial.polynomial.polyval(np.arange(n), np.polynomial.polynomial.polyfit(np.arange(n), u, 1)).T
    x = x / np.maximum(x.std(axis=0), 1e-300)
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(x, size, axis=0)) ** 2
    correlation = np.fft.irfft(power.sum(axis=1), size)[: n // 2] / np.arange(n, n - n // 2, -1)
    correlation = correlation / correlation[0]
    negative = np.flatnonzero(correlation < 0)
    if len(negative) == 0:
        return None
    inside = np.arange(max(int(negative[0]), 2), len(correlation) - 1)
    peaks = inside[(correlation[inside] >= correlation[inside - 1]) & (correlation[inside] >= correlation[inside + 1])]
    if len(peaks) == 0 or correlation[peaks].max() < 0.1:
        return None
    # The first peak that is nearly as high as the highest: later ones are its multiples.
    best = int(peaks[correlation[peaks] >= 0.8 * correlation[peaks].max()][0])
    left, centre, right = correlation[best - 1 : best + 2]
    bend = left - 2 * centre + right
    return best + (0.5 * (left - right) / bend if bend < 0 else 0.0)


class AbstractRoll(eqx.Module):
    """Something that forecasts from the rows of a record."""

    @abc.abstractmethod
    def ahead(self, record: Record, origins: np.ndarray, horizon: int) -> np.ndarray:
        """Transformed forecasts (origins, horizon, d), from the rows up to each origin, itself included."""
