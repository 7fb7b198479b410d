"""From a model that was fitted, or is not yet, to the result: baselines, scores, the choice, forecasts."""

from functools import cached_property
from typing import Any

import numpy as np

from ._baselines import Naive, SeasonalNaive, fit_autoregression, widening
from ._forecaster import (
    Forecaster,
    Rolled,
    errors_of_blocks,
    joined,
    mean_scaled_error,
    missed,
    residual_quantiles,
    roll,
    score,
    spread_origins,
)
from ._record import AbstractRoll, Record
from ._result import Estimate, Holdout, Samples, Score, SeriesFit
from ._transforms import Transform

_CALLED = {"model": "the model", "naive": "the last value", "seasonal_naive": "the last season", "ar": "an autoregression"}


_CLEARLY_WORSE = 1.25
"""An equation whose errors are so many times those of an autoregression leaves out what the data do."""


class Plan:
    """What every part of a fit needs to know."""

    def __init__(self, samples, records: list[Record], transform: Transform, period: float | None, horizon: int, season):
        self.samples, self.records, self.transform = samples, records, transform
        self.period, self.horizon = period, horizon
        given = season if season is not None else (None if period is None else round(period))
        shortest = min(record.train for record in records)
        self.season = given if given is not None and 1 < given < shortest else None
        steps = [np.abs(np.diff(transform.inverse(record.u[: record.train]), axis=0)) for record in records]
        self.scale = np.maximum(np.concatenate(steps).mean(axis=0), 1e-300)
        self._widenings: dict[int, float] = {}

    @cached_property
    def trained(self) -> dict[str, AbstractRoll]:
        """The baselines of the training part."""
        return self._baselines([record.training() for record in self.records])

    @cached_property
    def final(self) -> dict[str, AbstractRoll]:
        """The baselines of the whole record."""
        return self._baselines(self.records)

    def widening(self, first: int) -> float:
        """How much larger the errors of the autoregression are on what it was not fitted to, from the row `first` on."""
        if first not in self._widenings:
            found = [widening(self.trained["ar"], r, spread_origins(r, first), self.horizon) for r in self.records]
            self._widenings[first] = float(np.mean(found))
        return self._widenings[first]

    def _baselines(self, records: list[Record]) -> dict[str, AbstractRoll]:
        found: dict[str, AbstractRoll] = {"naive": Naive()}
        if self.season is not None:
            found["seasonal_naive"] = SeasonalNaive(self.season)
        return {**found, "ar": fit_autoregression(records)}


def assembled(plan: Plan, found: dict[str, Any], notes: list[str], settings: dict[str, Any]) -> SeriesFit:
    """Scores on the hold-out, the choice by the training part, and forecasts from the end.

    `found` is what fitting a model gives; without a model, not yet or not at all, its `trained` and `model` are None.
    """
    first = found["first"]
    trained, final, widen = plan.trained, plan.final, {"model": found["widen"], "ar": plan.widening(first)}
    if found["trained"] is not None:
        trained, final = {"model": found["trained"], **trained}, {"model": found["model"], **final}
    scores, insides, origins = {}, {}, 0
    longest = max(record.train for record in plan.records)
    for name, method in trained.items():
        rolled = [roll(method, r, spread_origins(r, first), plan.horizon).since(r.train) for r in plan.records]
        inside = joined([one.take(one.origins + plan.horizon < 0) for one in rolled])
        held = [_held_out(one, len(r.t) - r.train, plan.horizon) for one, r in zip(rolled, plan.records, strict=True)]
        ahead, misses = joined(held), missed(joined(rolled), longest, widen.get(name, 1.0))
        known = np.isfinite(ahead.truth).any()
        quantiles = residual_quantiles(misses, ahead.origins)
        scores[name] = score(ahead, quantiles, plan.transform, plan.scale) if known else None
        insides[name] = inside
        origins = len(ahead.origins)
    validation = {name: mean_scaled_error(inside, plan.transform, plan.scale) for name, inside in insides.items()}
    validation |= {} if found["validated"] is None else {"model": found["validated"], **found["validation"]}
    best = _best(validation, insides, plan)
    forecasters: dict[str, Any] = {
        name: Forecaster(method, tuple(plan.records), plan.transform, first, widen.get(name, 1.0))
        for name, method in final.items()
    }
    fitted = _fitted(final.get("model", final[best]), plan, first)
    everyone = {name: scores.get(name) for name in ("model", "naive", "seasonal_naive", "ar")}
    sentence = _reason(best, validation)
    if len(plan.samples.groups) > 1:
        sentence += continued(plan.samples)
    return SeriesFit(
        kind=found["kind"],
        delays=found["delays"],
        parameters=found["parameters"],
        holdout=Holdout(plan.horizon, origins, everyone),
        chosen=best,
        forecasts={name: forecaster(plan.horizon) for name, forecaster in forecasters.items()},
        fitted=fitted,
        residuals=plan.samples.y - fitted,
        profiles=found["profiles"],
        model=found["model"],
        samples=plan.samples,
        settings={**settings, "validation": validation},
        notes=(*notes, *found["notes"], *_doubt(found["kind"], found["delays"], everyone), sentence),
        forecasters=forecasters,
        missing=found.get("missing", ()),
    )


def _doubt(kind: str, delays: tuple[Estimate, ...], scores: dict[str, Score | None]) -> list[str]:
    """What a verdict cannot know, which takes the equation as given: whether something without a delay forecasts better."""
    own, other = scores["model"], scores["ar"]
    judged = kind != "neural" and any(delay.verdict is not None for delay in delays)
    if not judged or own is None or other is None or not own.mase > _CLEARLY_WORSE * other.mase:
        return []
    this, it = ("This delay is that", "it") if len(delays) == 1 else ("These delays are those", "them")
    return [
        f"{this} of the equation; an autoregression without {it} forecasts the part held out better (MASE {other.mase:.2f} "
        f"against {own.mase:.2f}), so that the equation may not be that of these data, or not of all."
    ]


def continued(samples: Samples) -> str:
    """Which of several series the forecast goes on from, as a note says it."""
    return f" It goes on from the last of the series, {samples.groups[-1][0]}."


def _best(validation: dict[str, float], insides: dict[str, Rolled], plan: Plan) -> str:
    """The method with the lowest error in the training part; last values only if they gain more than chance may give."""
    errors = {name: errors_of_blocks(inside, plan.transform, plan.scale) for name, inside in insides.items()}
    candidates = [name for name in ("ar", "model") if np.isfinite(validation.get(name, np.nan))]
    for name in ("naive", "seasonal_naive"):
        gain = 1 - errors[name] / np.maximum(errors["ar"], 1e-300) if name in errors else np.zeros(0)
        if len(gain) > 1 and gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)):
            candidates.append(name)
    # (The first of equals: a model that is wholly the autoregression's gives way to it.)
    return min(candidates, key=lambda name: validation[name], default="ar")


def _reason(best: str, validation: dict[str, float]) -> str:
    """Why its forecast is given."""
    given = f"The forecast given is that of {_CALLED[best]}"
    if not np.isfinite(validation[best]):
        return f"{given}: the training part is too short to compare forecasts so far ahead in it."
    error = f"in the training part (MASE {validation[best]:.3g})"
    if validation[best] > min(value for value in validation.values() if np.isfinite(value)):
        return f"{given}: no other had an error that is lower by more than chance may give {error}."
    return f"{given}, which had the lowest error {error}."


def _held_out(rolled: Rolled, rows: int, horizon: int) -> Rolled:
    """The origins from the last row of the training part on, whose whole horizon lies in the `rows` after it."""
    return rolled.take((rolled.origins >= -1) & (rolled.origins + horizon < rows))


def _fitted(method: AbstractRoll, plan: Plan, first: int) -> np.ndarray:
    """Each sample as predicted from the last origin before it; NaN before the first and beyond the horizon."""
    parts = []
    for record in plan.records:
        rolled = roll(method, record, spread_origins(record, first), plan.horizon)
        values = np.full(record.u.shape, np.nan)
        for origin, ahead in zip(rolled.origins, rolled.ahead, strict=True):
            stop = min(origin + 1 + plan.horizon, len(values))
            values[origin + 1 : stop] = ahead[: stop - origin - 1]
        parts.append(np.asarray(plan.transform.inverse(values)))
    return np.concatenate(parts)
