"""Forecasts from rolling origins: how good they were inside the record, and from that how sure they are beyond it."""

import dataclasses
import math

import equinox as eqx
import numpy as np

from ._record import AbstractRoll, Record
from ._result import LEVELS, Forecast, Score
from ._transforms import Transform

MOST_ORIGINS = 200

BLOCKS = 10
"""Of a record: what is validated is two of them, five apart, by what was fitted to the others."""

HALF, FEWEST = 0.25, 50
"""The half-life of errors, as a share of the record, and its lowest in rows."""

FEW = 10
"""Errors that are known from fewer origins than this do not make an interval narrower."""

_MIDDLE = int(np.argmin(np.abs(LEVELS - 0.5)))


class Forecaster(eqx.Module):
    """`forecaster(horizon)` forecasts from the end of the last of its records.

    `first`: the earliest row to forecast from. `widen`: by how much errors that were not seen in fitting exceed those that
    were; 1 for methods with few parameters.
    """

    method: AbstractRoll
    records: tuple[Record, ...]
    transform: Transform
    first: int
    widen: float = 1.0

    def __call__(self, horizon: int) -> Forecast:
        last = self.records[-1]
        ahead = self.method.ahead(last, np.array([len(last.t) - 1]), horizon)[0]
        rolled = [roll(self.method, r, spread_origins(r, self.first), horizon).since(len(r.t)) for r in self.records]
        misses = missed(joined(rolled), max(len(r.t) for r in self.records), self.widen)
        quantiles = residual_quantiles(misses, np.array([-1]))[:, 0]
        t = last.t[-1] + last.step * np.arange(1, horizon + 1)
        return Forecast(t, LEVELS, banded(ahead, quantiles, self.transform))


@dataclasses.dataclass
class Rolled:
    """Forecasts `ahead` (k, h, d) from the rows `origins` (k,), and the `truth` (k, h, d), NaN if unknown; transformed."""

    origins: np.ndarray
    ahead: np.ndarray
    truth: np.ndarray

    def take(self, keep: np.ndarray) -> "Rolled":
        return Rolled(self.origins[keep], self.ahead[keep], self.truth[keep])

    def since(self, row: int) -> "Rolled":
        """With rows counted from that one, so that what was rolled in several series can be taken together."""
        return dataclasses.replace(self, origins=self.origins - row)


def truth_of(u: np.ndarray, origins: np.ndarray, horizon: int) -> np.ndarray:
    """What came after each origin: (k, h, d), NaN behind the end."""
    rows = origins[:, None] + np.arange(1, horizon + 1)
    return np.where((rows < len(u))[..., None], u[np.minimum(rows, len(u) - 1)], np.nan)


def spread_origins(record: Record, first: int) -> np.ndarray:
    """Observed rows to forecast from, all over the record: at most `MOST_ORIGINS`, the end of the training among them."""
    rows = len(record.t)
    stride = max(1, -(-(rows - first) // MOST_ORIGINS))
    found = np.arange(first, rows - 1, stride)
    found = np.union1d(found, [record.train - 1]) if record.train - 1 >= first else found
    return found[~np.isnan(record.seen[found]).any(axis=1)]


def roll(method: AbstractRoll, record: Record, origins: np.ndarray, horizon: int) -> Rolled:
    return Rolled(origins, method.ahead(record, origins, horizon), truth_of(record.seen, origins, horizon))


def joined(rolled: list[Rolled]) -> Rolled:
    names = ("origins", "ahead", "truth")
    return Rolled(*(np.concatenate([getattr(one, name) for one in rolled]) for name in names))


@dataclasses.dataclass
class Misses:
    """Errors (k, h, d) of forecasts from the rows `origins` (k,), NaN if unknown; transformed.

    One counts half as much as another that is `half` rows younger.
    """

    origins: np.ndarray
    errors: np.ndarray
    half: float


def missed(rolled: Rolled, rows: int, widen: float) -> Misses:
    """Of a record of so many rows. Errors on rows before 0, which the method was fitted to, are multiplied by `widen`."""
    errors = rolled.truth - rolled.ahead
    fitted = rolled.origins[:, None] + np.arange(1, errors.shape[1] + 1) < 0
    return Misses(rolled.origins, np.where(fitted, widen, 1.0)[..., None] * errors, max(HALF * rows, FEWEST))


def residual_quantiles(misses: Misses, nows: np.ndarray) -> np.ndarray:
    """(q, m, h, d): the quantiles of truth − forecast at each horizon.

    Of the errors at that horizon and its neighbours, those that are known at each of the rows `nows` (m,). Where few are,
    quantiles are no closer than those of one sample less ahead: what was hardly ever seen is not more certain.
    """
    _, horizon, columns = misses.errors.shape
    quantiles = np.zeros((len(LEVELS), len(nows), horizon, columns))
    between = np.diff(np.unique(misses.origins))
    stride = float(np.median(between)) if len(between) else 1.0
    for h in range(horizon):
        reach = min(2, h, horizon - 1 - h)
        near = np.arange(h - reach, h + reach + 1)
        known_at = misses.origins[:, None] + near + 1
        # Neighbouring horizons of one origin err together, as do origins whose windows overlap: exceedances by half as much.
        alike = len(near) * max(1.0, 0.5 * (h + 1) / stride)
        for d in range(columns):
            errors = misses.errors[:, near, d]
            for m, now in enumerate(nows):
                known = np.isfinite(errors) & (known_at <= now)
                found = _quantiles(errors[known], now - known_at[known], misses.half, alike)
                if h > 0 and known.any(axis=1).sum() < FEW:
                    found = _no_closer(found, quantiles[:, m, h - 1, d])
                quantiles[:, m, h, d] = found
    return quantiles


def _quantiles(errors: np.ndarray, age: np.ndarray, half: float, alike: float) -> np.ndarray:
    """(q,), widened as for a sample of this size: the k-th of n stands for k / (n + 1). `alike` errors count as one.

    The median stays the forecast itself: a bias of the past need not be one of the future.
    """
    if len(errors) < 2:
        return np.zeros(len(LEVELS))
    order = np.argsort(errors)
    errors, weights = errors[order], 0.5 ** (age[order] / half)
    share = weights / weights.sum()
    count = max(1.0, 1 / np.sum(share**2) / alike)
    places = (count * (np.cumsum(share) - share / 2) + 0.5) / (count + 1)
    found = np.interp(LEVELS, places, errors)
    return found - found[_MIDDLE]


def _no_closer(quantiles: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The farther of both from the median, level by level."""
    return np.where(LEVELS < 0.5, np.minimum(quantiles, others), np.maximum(quantiles, others))


def banded(ahead: np.ndarray, quantiles: np.ndarray, transform: Transform) -> np.ndarray:
    """(q, ..., h, d) in the units of the data, from forecasts (..., h, d) and quantiles (q, ..., h, d) of their errors."""
    return np.asarray(transform.inverse(ahead[None] + quantiles))


def mean_scaled_error(rolled: Rolled, transform: Transform, scale: np.ndarray) -> float:
    """The MASE of the forecasts; `scale` (d,) is the mean absolute step of the training part."""
    miss = np.abs(transform.inverse(rolled.ahead) - transform.inverse(rolled.truth)) / scale
    return float(np.nanmean(miss)) if np.isfinite(miss).any() else math.nan


def errors_of_blocks(rolled: Rolled, transform: Transform, scale: np.ndarray) -> np.ndarray:
    """The mean scaled error of each of `BLOCKS` stretches of origins, but for those of which no truth is known."""
    blocks = np.array_split(np.arange(len(rolled.origins)), BLOCKS)
    known = [rolled.take(block) for block in blocks if np.isfinite(rolled.truth[block]).any()]
    return np.array([mean_scaled_error(block, transform, scale) for block in known])


def score(rolled: Rolled, quantiles: np.ndarray, transform: Transform, scale: np.ndarray) -> Score:
    """On the origins of a hold-out, with quantiles (q, k, h, d) of what was known at each."""
    truth = np.asarray(transform.inverse(rolled.truth))
    miss = np.asarray(transform.inverse(rolled.ahead)) - truth
    bands = banded(rolled.ahead, quantiles, transform)
    seen = np.isfinite(truth)
    inside = (truth >= bands[0]) & (truth <= bands[-1])
    return Score(
        mean_scaled_error(rolled, transform, scale), float(np.sqrt(np.nanmean(miss**2))), float(inside[seen].mean())
    )
