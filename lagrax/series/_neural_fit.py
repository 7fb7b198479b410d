"""Fitting a neural delay equation, where there is no mechanism: its delays are good for prediction, not for physics."""

import dataclasses
import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ._baselines import forecast_apart
from ._blend import Blend, blended, cautious_share
from ._forecaster import joined
from ._neural import Ensemble, Member, SkipField
from ._record import Record
from ._result import Estimate, Profile
from ._rolling import Rolled, mean_scaled_error, truth_of
from ._scan import AHEAD, Scan, greedy
from ._stages import Stages, unfinished

FEWEST_NEURAL = 80
"""Fewer rows of training are refused: on 21 points a neural delay equation is catastrophic, an autoregression is not."""

WINDOW, ITERATIONS, PATIENCE = 12, 1500, 300
MOST_DELAYS = 5
DRIFT = 0.5
"""A series drifts if its running mean has a larger share of its variance: growing economies 0.6 to 0.9, cycles below 0.3."""
STAGES = ("scan", "training", "fitting", "forecast")


def fit_neural(
    plan: Any, delays: Any, bounds: Any, season: Any, seeds: int, minutes: float | None, stages: Stages
) -> dict[str, Any]:
    """What `fit_series` needs of a model; with `model` None where the record is too short for one."""
    rows = sum(record.train for record in plan.records)
    longest = _longest(plan, bounds)
    window = min(plan.horizon, WINDOW)
    usable = [_origins(record, record.train, longest, window) for record in plan.records]
    why = _too_few(plan, rows, usable)
    if why is not None:
        return _refused(plan, why)
    until = time.monotonic() + (math.inf if minutes is None else 60 * minutes)
    anchored, step = _drifts(plan.records, longest + 2), plan.records[0].step
    first = _standardised(plan, season, longest, anchored)
    tell = lambda missing, **known: stages.report(unfinished("neural", first.past - 1, missing, **known))
    tell(STAGES)
    stages.tell("scan", None, "looking for delays that pay")
    table = _Table(plan.records, first, anchored, window)
    found = Scan(**stages.once("scan", lambda: vars(_scan(table, usable, longest, delays))))
    scanned = {"delays": _scanned(found, step), "profiles": _profiles(found, step)}
    tell(STAGES[1:], **scanned)
    members = _members(table, usable, found, longest, anchored, seeds)
    from ._ensemble import Training, split, train

    at = table.rows(usable)
    rows_of, owner = split(at, window, seeds)
    key = jr.key(0)
    say = lambda stage, text: lambda share: stages.tell(stage, share, text)
    training = Training(table.data, window, first.past, until, stages)
    trained = train(
        members, rows_of, training, key=key, iterations=ITERATIONS, patience=PATIENCE, name="training",
        tell=say("training", f"{seeds} members on the training part"),
    )  # fmt: skip
    tell(STAGES[2:], **{**scanned, "delays": _estimates(trained, step)})
    model = eqx.tree_at(lambda ensemble: ensemble.member, first, trained)
    validated = _validated(plan, model, usable, owner)
    everything = [_origins(record, len(record.t), longest, window) for record in plan.records]
    again, _ = split(table.rows(everything), window, seeds)
    final = train(
        trained, again, training, key=jr.fold_in(key, 1), iterations=ITERATIONS // 3, patience=PATIENCE // 2, name="fitting",
        tell=say("fitting", "the same members on the whole record"),
    )  # fmt: skip
    tell(STAGES[3:], **{**scanned, "delays": _estimates(final, step)})
    return {
        "kind": "neural", "delays": _estimates(final, step), "parameters": (),
        "profiles": scanned["profiles"], "trained": Blend(model, plan.trained["ar"], validated.share),
        "model": Blend(eqx.tree_at(lambda ensemble: ensemble.member, first, final), plan.final["ar"], validated.share),
        "first": first.past - 1, "widen": validated.widen, "validated": validated.model, "notes": (validated.sentence(),),
        "validation": {"ar": validated.ar},
    }  # fmt: skip


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


class _Table:
    """All records as one table of standardised rows, in which windows never cross from one record into the next.

    `level` (n, d): what a network that forecasts from each row measures states from.
    """

    def __init__(self, records: list[Record], ensemble: Ensemble, anchored: bool, window: int):
        self.starts = np.cumsum([0] + [len(record.t) for record in records])[:-1]
        self.x = np.concatenate([(record.u - ensemble.mean) / ensemble.sd for record in records]).astype(np.float32)
        self.more = np.concatenate([ensemble.more(record) for record in records])
        self.level = np.zeros_like(self.x) if not anchored else _running_mean(self.x, ensemble.past)
        seen = np.concatenate([~np.isnan(record.seen) for record in records]).astype(np.float32)
        each = zip(*(record.limits(np.arange(len(record.t))) for record in records), strict=True)
        limits = [((np.concatenate(limit) - ensemble.mean) / ensemble.sd).astype(np.float32) for limit in each]
        self.data = tuple(jnp.asarray(part) for part in (self.x, seen, self.more, *limits))

    def seen(self, rows: np.ndarray, lag: int) -> np.ndarray:
        """The states so many rows before, as a network that forecasts from `rows` sees them."""
        return self.x[rows - lag] - self.level[rows]

    def rows(self, origins: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([start + rows for start, rows in zip(self.starts, origins, strict=True)])


def _longest(plan: Any, bounds: Any) -> int:
    """The longest delay to be tried, in samples."""
    record = max(plan.records, key=lambda record: record.train)
    if bounds is not None:
        high = float(np.max(np.asarray(bounds, float)))
        length = float(record.t[record.train - 1] - record.t[0])
        if high > length / 3:
            raise ValueError(
                f"a delay may be {high:g}, and the training part is {length:g} long, expected at "
                "most a third of that: lower the bound, or give a longer record"
            )
        return max(2, round(high / record.step))
    cycle = 24.0 if plan.period is None else plan.period
    return min(max(round(1.25 * cycle), 24), max(4, record.train // 6))


def _origins(record: Record, stop: int, longest: int, window: int) -> np.ndarray:
    """Observed rows with enough past, whose window lies before `stop`."""
    rows = np.arange(longest + 1, stop - max(window, max(AHEAD)))
    return rows[~np.isnan(record.seen[rows]).any(axis=1)]


def _running_mean(x: np.ndarray, rows: int) -> np.ndarray:
    """Of so many rows up to each; of those that there are at the start."""
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0, dtype=float)])
    stop = np.arange(1, len(x) + 1)
    start = np.maximum(stop - rows, 0)
    return ((total[stop] - total[start]) / (stop - start)[:, None]).astype(x.dtype)


def _drifts(records: list[Record], rows: int) -> bool:
    """Whether more of the training part's variance is between stretches of so many rows than inside them."""
    parts = [record.u[: record.train] for record in records]
    means = np.concatenate([_running_mean(part, rows)[rows - 1 :] for part in parts])
    return bool(np.mean(means.var(axis=0) / np.maximum(np.concatenate(parts).var(axis=0), 1e-300)) > DRIFT)


def _standardised(plan: Any, season: int | None, longest: int, anchored: bool) -> Ensemble:
    """An ensemble that knows how to read records, without members yet. Only the training part is looked at."""
    parts = [record.u[: record.train] for record in plan.records]
    training = np.concatenate(parts)
    around = np.concatenate([part - _running_mean(part, longest + 2) for part in parts]) if anchored else training
    mean, sd = training.mean(axis=0), np.maximum(around.std(axis=0), 1e-12)
    given = [record.inputs[: record.train] for record in plan.records if record.inputs is not None]
    inputs = np.concatenate(given) if given else np.zeros((1, 0))
    record = plan.records[0]
    nobody: Any = None
    return Ensemble(
        nobody, mean, sd, inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-12),
        season, longest + 2, float(record.t[0]), record.step,
    )  # fmt: skip


def _scan(table: _Table, usable: list[np.ndarray], longest: int, delays: Any) -> Scan:
    rows = table.rows(usable)
    if delays == "auto":
        return greedy(table, rows, longest, MOST_DELAYS)
    if isinstance(delays, int):
        return greedy(table, rows, longest, delays, fewest=delays)
    raise ValueError(f"delays = {delays!r}, expected 'auto' or how many: a neural model finds where they are")


def _members(table: _Table, usable: list[np.ndarray], found: Scan, longest: int, anchored: bool, seeds: int) -> Member:
    """Members that start as the one-step ridge regression, with the delays of the scan."""
    rows = table.rows(usable)
    lags = sorted(found.delays)
    z = np.concatenate([*(table.seen(rows, lag) for lag in (0, *lags)), table.more[rows]], axis=1).astype(float)
    design = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    ridge = 1e-3 * len(z) * np.eye(design.shape[1])
    weights = np.linalg.solve(design.T @ design + ridge, design.T @ (table.x[rows + 1] - table.x[rows]))
    share = np.clip((np.array(lags) - 1) / (longest - 1), 0.02, 0.98)
    raw = jnp.asarray(np.log(share / (1 - share)), jnp.float32)
    make = lambda key: Member(SkipField(weights[:-1].T, weights[-1], key=key), raw, float(longest), anchored)
    members = [make(key) for key in jr.split(jr.key(1), seeds)]
    is_array = eqx.is_inexact_array
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(eqx.filter(member, is_array) for member in members))
    return eqx.combine(stacked, eqx.filter(members[0], is_array, inverse=True))


def _scored(record: Record, rows: np.ndarray, horizon: int) -> np.ndarray:
    """From which of the rows the whole horizon lies in the training part."""
    return rows + horizon < record.train


def _validated(plan: Any, model: Ensemble, usable: list[np.ndarray], owner: np.ndarray) -> Validated:
    """Each member forecasts the blocks that it did not see, as does an autoregression fitted without them."""
    networks, others, inside, first = [], [], [], 0
    for record, rows in zip(plan.records, usable, strict=True):
        mine = owner[first : first + len(rows)]
        first += len(rows)
        keep = _scored(record, rows, plan.horizon) & (mine >= 0)
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


def _estimates(member: Member, step: float) -> tuple[Estimate, ...]:
    delays = np.sort(np.asarray(member.delays(), float), axis=1) * step
    found = []
    for i, column in enumerate(delays.T):
        middle = float(np.median(column))
        share = (middle / step - 1) / (member.longest - 1)
        word = "at bound" if share > 0.99 or (share < 0.01 and middle > step) else "predictive only"
        found.append(Estimate(f"tau{i + 1}", middle, float(column.min()), float(column.max()), word))
    return tuple(found)


def _scanned(found: Scan, step: float) -> tuple[Estimate, ...]:
    """Where the scan found delays, before they are trained."""
    lags = sorted(found.delays)
    return tuple(Estimate(f"tau{i + 1}", lag * step, None, None, "predictive only") for i, lag in enumerate(lags))


def _profiles(found: Scan, step: float) -> tuple[Profile, ...]:
    """The error of the scan over each delay, in the order of their length."""
    order = np.argsort(found.delays)
    curves = [found.curves[i] for i in order]
    return tuple(Profile(f"tau{i + 1}", lags * step, errors / errors.min()) for i, (lags, errors) in enumerate(curves))


def _too_few(plan: Any, rows: int, usable: list[np.ndarray]) -> str | None:
    """Why there are too few samples to train a network or to see how good it is; None if there are enough."""
    windows = sum(map(len, usable))
    if rows < FEWEST_NEURAL:
        return f"the training part has {rows} samples, and at least {FEWEST_NEURAL} are needed"
    if windows < FEWEST_NEURAL // 2:
        return f"the training part has {windows} rows with a past as long as a delay, and {FEWEST_NEURAL // 2} are needed"
    if not any(_scored(record, at, plan.horizon).any() for record, at in zip(plan.records, usable, strict=True)):
        return f"the training part, {rows} samples, is too short to look {plan.horizon} ahead in it"
    return None


def _refused(plan: Any, why: str) -> dict[str, Any]:
    note = f"No neural model was fitted: {why}; the forecast is a baseline's."
    return {
        "kind": "neural", "delays": (), "parameters": (), "profiles": (), "trained": None, "model": None, "notes": (note,),
        "first": max(1, min(record.train for record in plan.records) // 3), "widen": 1.0, "validated": None,
    }  # fmt: skip
