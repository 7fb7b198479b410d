"""What the paper says of its image models, judged by differences of models with as many channels of zeros, seed by seed.

Seed i of both models saw the same batches, and both were tested on the same images, so that much of the chance is in both
and cancels. What is left is of two kinds, and each has its 95 % interval: other seeds (Student's t over the differences of
the seeds), and other test images (a bootstrap over the images, of the difference averaged over the seeds).
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...runner import Claim, Settings, Table
from . import _models as models

Interval = tuple[float, float]
_RESAMPLES = 2000

Each = dict[str, np.ndarray]
"""The last test of a model, image by image: "loss" and "right", (seeds, images)."""

_FORMS = {"accuracy": "{:+.2f}", "test loss": "{:+.4f}", "training loss": "{:+.4f}"}
_UNITS = {"accuracy": "accuracy, points", "test loss": "test loss", "training loss": "training loss"}
_WORDS = {True: "reproduced", False: "not reproduced", None: "cannot tell"}


# --- a difference with its intervals ----------------------------------------------------------------------------------


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


# --- all of them, and what they say of the claims ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two models of a group in one quantity: the paper says that the first is better."""

    first: str
    second: str
    what: str
    difference: Difference

    @property
    def verdict(self) -> bool | None:
        return self.difference.verdict(1 if self.what == "accuracy" else -1)

    @property
    def names(self) -> str:
        return f"{self.first} − {self.second}"

    @property
    def kinds(self) -> tuple[str, str]:
        return models.MODELS[self.first][0], models.MODELS[self.second][0]

    def text(self) -> str:
        return f"{self.names} {self.difference.text(_FORMS[self.what])}"


def groups(names: list[str]) -> list[list[str]]:
    """The models with as many channels of zeros, in the order of the paper's tables."""
    augments = dict.fromkeys(models.MODELS[name][1] for name in names)
    return [[name for name in names if models.MODELS[name][1] == augment] for augment in augments]


def comparisons(measured: dict[str, Any], each: dict[str, Each]) -> list[Comparison]:
    """Every later model of a group with every earlier one, in what all of them have; none before the first epoch is over."""
    found = []
    for group in groups(list(measured)):
        pairs = [(first, second) for i, second in enumerate(group) for first in group[i + 1 :]]
        if any(not measured[name]["epochs"] for name in group):
            continue
        found += [Comparison(*pair, what, _difference(what, *pair, measured, each)) for what in _FORMS for pair in pairs]
    return found


def _difference(what: str, first: str, second: str, measured: dict[str, Any], each: dict[str, Each]) -> Difference:
    seeds = lambda name: measured[name][what]["seeds"]
    of_images = {"accuracy": lambda name: 100.0 * each[name]["right"], "test loss": lambda name: each[name]["loss"]}
    pick = of_images.get(what, lambda name: None)
    return compared(seeds(first), seeds(second), pick(first), pick(second))


def claims(settings: Settings, dataset: str, found: list[Comparison]) -> list[Claim]:
    """The paper's statements, each to hold for all the models there are; no verdict at the preset `smoke`."""
    printed = models.DATASETS[dataset]
    beside_node = [each for each in found if each.kinds[1] == "NODE"]
    of_both = [each for each in found if each.kinds[0] == "NODE+NDDE"]
    against = {each.kinds[1] for each in of_both}

    def claim(paper: str, parts: list[Comparison]) -> list[Claim]:
        whats = dict.fromkeys(each.what for each in parts)
        listed = {what: "; ".join(each.text() for each in parts if each.what == what) for what in whats}
        measured = " ".join(f"{_UNITS[what].capitalize()}: {text}." for what, text in listed.items())
        verdict = together(each.verdict for each in parts), _WORDS[None]
        if settings.preset == "smoke":
            verdict = None, "not comparable"
        return [Claim(f"{printed}: {paper}", measured, *verdict)] if parts else []

    only = lambda parts, *whats: [each for each in parts if each.what in whats]
    return [
        *claim(
            "the NDDEs and their extensions reach lower training and test losses than the NODEs/ANODEs.",
            only(beside_node, "training loss", "test loss"),
        ),
        *claim("their test accuracies are much higher than those of the NODEs/ANODEs.", only(beside_node, "accuracy")),
        *claim(
            "NODE+NDDE exhibits the best performance.",
            only(of_both, "accuracy") if against == {"NODE", "NDDE"} else [],
        ),
    ]


def together(verdicts: Iterable[bool | None]) -> bool | None:
    """Of a claim with several parts: it holds if all do, it does not if one does not."""
    found = list(verdicts)
    if False in found:
        return False
    return None if None in found else True


def table(dataset: str, found: list[Comparison]) -> list[Table]:
    """All the differences with their intervals."""
    rows = [
        (
            each.names,
            _UNITS[each.what],
            (form := _FORMS[each.what]).format(each.difference.mean),
            shown(each.difference.seeds, form),
            shown(each.difference.images, form),
            _WORDS[each.verdict],
        )
        for each in found
    ]
    columns = ("models", "of", "difference", "95 % over seeds", "95 % over test images", "the paper's order")
    title = f"{models.DATASETS[dataset]}: differences after the last epoch, seed by seed"
    return [Table(title, columns, rows)] if rows else []


def plain(found: list[Comparison]) -> list[dict[str, Any]]:
    """For metrics.json."""
    return [
        {"models": each.names, "of": each.what, **each.difference.plain(), "the paper's order": _WORDS[each.verdict]}
        for each in found
    ]
