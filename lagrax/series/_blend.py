"""A forecast that is in part a network's and in part an autoregression's: they err differently, and less together."""

import dataclasses

import numpy as np

from ._record import AbstractRoll
from ._rolling import Rolled, errors_of_blocks
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
