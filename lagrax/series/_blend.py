"""A forecast that is in part a network's and in part an autoregression's: they err differently, and less together.

How large a part is found on blocks of the record that neither has seen.
"""

import dataclasses
from typing import Any

import numpy as np

from ._baselines import forecast_apart
from ._forecaster import Rolled, errors_of_blocks, joined, mean_scaled_error, truth_of
from ._neural import Ensemble
from ._record import AbstractRoll, Record
from ._transforms import Transform

SHARES = np.linspace(0, 1, 21)


class Blend(AbstractRoll):
    """`share` of what `network` forecasts, and the rest of what `other` does, both transformed."""

    network: AbstractRoll
    other: AbstractRoll
    share: float

    def ahead(self, record, origins, horizon):
        return mixed(self.network.ahead(record, origins, horizon), self.other.ahead(record, origins, horizon), self.share)


def mixed(network: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    return share * network + (1 - share) * other


def blended(network: Rolled, other: Rolled, share: float) -> Rolled:
    """Of forecasts from the same origins."""
    return dataclasses.replace(network, ahead=mixed(network.ahead, other.ahead, share))


def cautious_share(network: Rolled, other: Rolled, transform: Transform, scale: np.ndarray) -> float:
    """The smallest share whose error is within one standard error of the lowest, over blocks, each in parts of `other`'s.

    What comes after the end of a record is harder than blocks in its middle: the lowest error there promises too much.
    """
    errors = np.array([errors_of_blocks(blended(network, other, share), transform, scale) for share in SHARES])
    if errors.shape[1] < 2:
        return 0.0
    errors = errors / np.maximum(errors[0], 1e-12 * errors.max() + 1e-300)
    above = errors - errors[np.argmin(errors.mean(axis=1))]
    alike = above.mean(axis=1) <= above.std(axis=1, ddof=1) / np.sqrt(above.shape[1])
    return float(SHARES[np.argmax(alike)])


@dataclasses.dataclass(frozen=True)
class Validated:
    """The MASE, on blocks that they did not see, of the network, an autoregression, and the model.

    That is `share` of the one and the rest of the other; its errors are `widen` times as large there as on what it saw.
    """

    network: float
    ar: float
    model: float
    share: float
    widen: float

    def sentence(self) -> str:
        found = (
            f"Validated on blocks they did not see, the network had a MASE of {self.network:.3g}, and an autoregression "
            f"{self.ar:.3g}"
        )
        if self.share == 0:
            return f"{found}; a forecast that is in part the network's gains no more than chance may give."
        if self.share == 1:
            return f"{found}."
        return f"{found}; the model is {self.share:.0%} of the network and the rest of the autoregression: {self.model:.3g}."


def validate(plan: Any, model: Ensemble, usable: list[np.ndarray], owner: np.ndarray) -> Validated:
    """Each member forecasts the blocks that it did not see, as does an autoregression fitted without them."""
    networks, others, inside, first = [], [], [], 0
    for record, rows in zip(plan.records, usable, strict=True):
        mine = owner[first : first + len(rows)]
        first += len(rows)
        keep = scored(record, rows, plan.horizon) & (mine >= 0)
        keep &= np.arange(len(rows)) % max(1, len(rows) // 200) == 0
        rows, mine = rows[keep], mine[keep]
        if len(rows) == 0:
            continue
        each = model.each(record, rows, plan.horizon)
        truth = truth_of(record.seen, rows, plan.horizon)
        networks.append(Rolled(rows, record.inside(each[mine, np.arange(len(rows))], rows), truth))
        others.append(Rolled(rows, forecast_apart(record, rows, mine, plan.horizon), truth))
        seen = Rolled(rows, record.inside(np.median(each, axis=0), rows), truth)
        inside.append((seen, Rolled(rows, plan.trained["ar"].ahead(record, rows, plan.horizon), truth)))
    network, other = joined(networks), joined(others)
    share = cautious_share(network, other, plan.transform, plan.scale)
    error_of = lambda rolled: mean_scaled_error(rolled, plan.transform, plan.scale)
    spread = lambda rolled: np.nanmean(np.abs(rolled.truth - rolled.ahead))
    model_there, here = blended(network, other, share), joined([blended(*pair, share) for pair in inside])
    widen = float(max(1.0, spread(model_there) / spread(here)))
    return Validated(error_of(network), error_of(other), error_of(model_there), share, widen)


def scored(record: Record, rows: np.ndarray, horizon: int) -> np.ndarray:
    """From which of the rows the whole horizon lies in the training part."""
    return rows + horizon < record.train
