"""Rolling origins: how good forecasts were inside the record, and from that how sure they are beyond it."""

import dataclasses

import numpy as np

from ._result import LEVELS, Score
from ._transforms import Transform


@dataclasses.dataclass
class Rolled:
    """Forecasts `ahead` (k, h, d) from the rows `origins` (k,), and the `truth` (k, h, d), NaN if unknown; transformed."""

    origins: np.ndarray
    ahead: np.ndarray
    truth: np.ndarray

    def take(self, keep: np.ndarray) -> "Rolled":
        return Rolled(self.origins[keep], self.ahead[keep], self.truth[keep])


def truth_of(u: np.ndarray, origins: np.ndarray, horizon: int) -> np.ndarray:
    """What came after each origin: (k, h, d), NaN behind the end."""
    rows = origins[:, None] + np.arange(1, horizon + 1)
    return np.where((rows < len(u))[..., None], u[np.minimum(rows, len(u) - 1)], np.nan)


def residual_quantiles(rolled: Rolled) -> np.ndarray:
    """(q, h, d): the quantiles of truth − forecast at each horizon, from that horizon and its neighbours."""
    errors = rolled.truth - rolled.ahead
    horizon = errors.shape[1]
    found = []
    for h in range(horizon):
        reach = min(2, h, horizon - 1 - h)
        near = errors[:, h - reach : h + reach + 1].reshape(-1, errors.shape[-1])
        found.append(_quantiles(near))
    quantiles = np.stack(found, axis=1)
    middle = int(np.argmin(np.abs(LEVELS - 0.5)))
    # The median stays the forecast itself: a bias of the past need not be one of the future.
    return quantiles - quantiles[middle]


def _quantiles(errors: np.ndarray) -> np.ndarray:
    """(q, d), widened as for a sample of this size: the k-th of n stands for k / (n + 1)."""
    columns = []
    for column in errors.T:
        column = np.sort(column[np.isfinite(column)])
        if len(column) < 2:
            columns.append(np.zeros(len(LEVELS)))
            continue
        places = np.arange(1, len(column) + 1) / (len(column) + 1)
        columns.append(np.interp(LEVELS, places, column))
    return np.stack(columns, axis=1)


def banded(ahead: np.ndarray, quantiles: np.ndarray, transform: Transform) -> np.ndarray:
    """(q, ..., h, d) in the units of the data, from forecasts (..., h, d) and quantiles (q, h, d) of their errors."""
    shape = (len(quantiles),) + (1,) * (ahead.ndim - 2) + quantiles.shape[1:]
    return np.asarray(transform.inverse(ahead[None] + quantiles.reshape(shape)))


def mean_scaled_error(rolled: Rolled, transform: Transform, scale: np.ndarray) -> float:
    """The MASE of the forecasts; `scale` (d,) is the mean absolute step of the training part."""
    miss = np.abs(transform.inverse(rolled.ahead) - transform.inverse(rolled.truth)) / scale
    return float(np.nanmean(miss))


def score(rolled: Rolled, quantiles: np.ndarray, transform: Transform, scale: np.ndarray) -> Score:
    """On the origins of a hold-out, with quantiles from elsewhere."""
    truth = np.asarray(transform.inverse(rolled.truth))
    miss = np.asarray(transform.inverse(rolled.ahead)) - truth
    bands = banded(rolled.ahead, quantiles, transform)
    seen = np.isfinite(truth)
    inside = (truth >= bands[0]) & (truth <= bands[-1])
    return Score(
        mean_scaled_error(rolled, transform, scale), float(np.sqrt(np.nanmean(miss**2))), float(inside[seen].mean())
    )
