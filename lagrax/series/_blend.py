"""A forecast that is in part a network's and in part an autoregression's: they err differently, and less together."""

import dataclasses

import numpy as np

from ._baselines import BLOCKS
from ._record import AbstractRoll
from ._rolling import Rolled, mean_scaled_error
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


def best_share(network: Rolled, other: Rolled, transform: Transform, scale: np.ndarray) -> float:
    """The share with the lowest mean absolute error; 0 if it gains no more than the standard error of that over blocks."""
    blocks = np.array_split(np.arange(len(network.origins)), BLOCKS)
    known = [block for block in blocks if np.isfinite(network.truth[block]).any()]
    error = lambda rolled: [mean_scaled_error(rolled.take(block), transform, scale) for block in known]
    errors = np.array([error(blended(network, other, share)) for share in SHARES])
    best = int(np.argmin(errors.mean(axis=1)))
    gain = errors[0] - errors[best]
    return float(SHARES[best]) if len(gain) > 1 and gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)) else 0.0
