"""Two models compared seed by seed: differences with 95 % intervals, and what they say of a claim.

Seed i of both models saw the same batches, and both were tested on the same images, so that much of the chance is in both
and cancels. What is left is of two kinds, and each has its interval: other seeds (Student's t over the differences of the
seeds), and other test images (a bootstrap over the images, of the difference averaged over the seeds).
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

Interval = tuple[float, float]

_RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Difference:
    """A number of one model minus that of another: the mean over the seeds, and its 95 % intervals where there are any."""

    mean: float
    seeds: Interval | None
    images: Interval | None

    def verdict(self, sign: int) -> bool | None:
        """Whether it has this sign: True or False if the interval over the seeds and, where there is one, that over the
        images lie on one side of zero; None if they do not, or if a single seed says nothing of others."""
        if self.seeds is None:
            return None
        intervals = [self.seeds] if self.images is None else [self.seeds, self.images]
        low, high = (min(sign * x for x in each) for each in intervals), (max(sign * x for x in each) for each in intervals)
        if all(end > 0 for end in low):
            return True
        return False if all(end < 0 for end in high) else None

    def text(self, form: str) -> str:
        """Such as "+0.52 (seeds +0.11 to +0.93, images +0.20 to +0.84)"."""
        parts = [f"{name} {shown(each, form)}" for name, each in (("seeds", self.seeds), ("images", self.images)) if each]
        return form.format(self.mean) + (f" ({', '.join(parts)})" if parts else "")

    def plain(self) -> dict[str, Any]:
        """For metrics.json."""
        return {"mean": self.mean, "95 % over seeds": self.seeds, "95 % over images": self.images}


def shown(interval: Interval | None, form: str) -> str:
    return "–" if interval is None else f"{form.format(interval[0])} to {form.format(interval[1])}"


def compared(first: Any, second: Any, first_images: Any = None, second_images: Any = None) -> Difference:
    """First minus second: numbers of the seeds, (seeds,); for averages over images, those too, (seeds, images)."""
    differences = np.asarray(first, float) - np.asarray(second, float)
    images = None
    if first_images is not None:
        images = resampled(np.mean(np.asarray(first_images, float) - np.asarray(second_images, float), axis=0))
    return Difference(float(np.mean(differences)), student(differences), images)


def student(values: np.ndarray) -> Interval | None:
    """The 95 % interval of the mean, by Student's t; None for a single value, or where some are not finite."""
    from scipy.stats import t

    if len(values) < 2 or not np.isfinite(values).all():
        return None
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def resampled(values: np.ndarray) -> Interval | None:
    """The 95 % interval of the mean, by a bootstrap whose draws are always the same; None where some are not finite."""
    if not np.isfinite(values).all():
        return None
    draw = np.random.default_rng(0)
    means = [np.mean(values[draw.integers(0, len(values), len(values))]) for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def together(verdicts: Iterable[bool | None]) -> bool | None:
    """Of a claim with several parts: it holds if all do, it does not if one does not."""
    found = list(verdicts)
    if False in found:
        return False
    return None if None in found else True
