"""A forecast of any horizon from the end of a record, with intervals from how it would have done inside it."""

import equinox as eqx
import numpy as np

from ._record import AbstractRoll, Record
from ._result import LEVELS, Forecast
from ._rolling import Rolled, banded, missed, residual_quantiles, truth_of
from ._transforms import Transform

MOST_ORIGINS = 200


def spread_origins(record: Record, first: int) -> np.ndarray:
    """Observed rows to forecast from, all over the record: at most `MOST_ORIGINS`, the end of the training among them."""
    rows = len(record.t)
    stride = max(1, -(-(rows - first) // MOST_ORIGINS))
    found = np.arange(first, rows - 1, stride)
    found = np.union1d(found, [record.train - 1]) if record.train - 1 >= first else found
    return found[~np.isnan(record.seen[found]).any(axis=1)]


def roll(method: AbstractRoll, record: Record, origins: np.ndarray, horizon: int) -> Rolled:
    return Rolled(origins, method.ahead(record, origins, horizon), truth_of(record.seen, origins, horizon))


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


def joined(rolled: list[Rolled]) -> Rolled:
    names = ("origins", "ahead", "truth")
    return Rolled(*(np.concatenate([getattr(one, name) for one in rolled]) for name in names))
