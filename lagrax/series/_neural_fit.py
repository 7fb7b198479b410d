"""Fitting a neural delay equation, where there is no mechanism: its delays are good for prediction, not for physics.

Which delays pay, a greedy scan with random-feature ridge regression says, a cheap stand-in for the network to be trained.
"""

import dataclasses
import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ._blend import Blend, scored, validate
from ._neural import Ensemble, Member, SkipField
from ._record import Record
from ._result import Estimate, Profile
from ._stages import Stages, unfinished

FEWEST_NEURAL = 80
"""Fewer rows of training are refused: on 21 points a neural delay equation is catastrophic, an autoregression is not."""

WINDOW, ITERATIONS, PATIENCE = 12, 1500, 300
MOST_DELAYS = 5
DRIFT = 0.5
"""A series drifts if its running mean has a larger share of its variance: growing economies 0.6 to 0.9, cycles below 0.3."""
STAGES = ("scan", "training", "fitting", "forecast")

FEATURES, FOLDS, AHEAD = 80, 5, (1, 2, 4)
GAIN = 0.005
"""A delay that lowers the error by less than this share is not taken."""
MOST_ROWS = 1500


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
    validated = validate(plan, model, usable, owner)
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


@dataclasses.dataclass
class Scan:
    """Delays in samples, shortest gain last, and for each the candidates (k,) and their errors (k,)."""

    delays: list[int]
    curves: list[tuple[np.ndarray, np.ndarray]]


def _scan(table: _Table, usable: list[np.ndarray], longest: int, delays: Any) -> Scan:
    rows = table.rows(usable)
    if delays == "auto":
        return greedy(table, rows, longest, MOST_DELAYS)
    if isinstance(delays, int):
        return greedy(table, rows, longest, delays, fewest=delays)
    raise ValueError(f"delays = {delays!r}, expected 'auto' or how many: a neural model finds where they are")


def candidates(longest: int) -> np.ndarray:
    """1, 2, 3, … and from 24 on in steps of 4 %."""
    grid = np.concatenate([np.arange(1, 25), np.round(24 * 1.04 ** np.arange(1, 200))]).astype(int)
    return np.unique(grid[grid <= longest])


def greedy(table: Any, rows: np.ndarray, longest: int, most: int, fewest: int = 1) -> Scan:
    """`table`: what a network sees. `rows` (m,): usable origins, all with `longest` rows of past.

    Errors are cross-validated on contiguous blocks: neighbouring rows share their noise.
    """
    rows = rows[:: max(1, -(-len(rows) // MOST_ROWS))]
    targets = np.concatenate([table.x[rows + h] - table.x[rows] for h in AHEAD], axis=1)
    targets = targets / np.maximum(targets.std(axis=0), 1e-12)
    fold = np.arange(len(rows)) * FOLDS // len(rows)
    base = np.concatenate([table.seen(rows, 0), table.more[rows]], axis=1)
    taken: list[int] = []
    curves = []
    error = _error(base, targets, fold)
    lags = candidates(longest)
    while len(taken) < most:
        parts = [base] + [table.seen(rows, lag) for lag in taken]
        with_lag = lambda lag, parts=parts: np.concatenate([*parts, table.seen(rows, lag)], axis=1)
        errors = np.array([np.inf if lag in taken else _error(with_lag(lag), targets, fold) for lag in lags])
        best = int(np.argmin(errors))
        if len(taken) >= fewest and errors[best] > (1 - GAIN) * error:
            break
        error = float(errors[best])
        taken.append(int(lags[best]))
        curves.append((lags[np.isfinite(errors)], errors[np.isfinite(errors)]))
    return Scan(taken, curves)


def _error(inputs: np.ndarray, targets: np.ndarray, fold: np.ndarray) -> float:
    """The cross-validated squared error of a ridge regression on the inputs and random features of them."""
    rng = np.random.default_rng(0)
    count = inputs.shape[1]
    hidden = np.tanh(inputs @ (rng.standard_normal((count, FEATURES)) / np.sqrt(count)) + rng.uniform(-1, 1, FEATURES))
    design = np.concatenate([np.ones((len(inputs), 1)), inputs, hidden], axis=1)
    grams = [(design[fold == i].T @ design[fold == i], design[fold == i].T @ targets[fold == i]) for i in range(FOLDS)]
    whole, right = sum(gram for gram, _ in grams), sum(other for _, other in grams)
    ridge = 1e-3 * len(inputs) * np.eye(design.shape[1])
    ridge[: count + 1] *= 1e-3
    total = 0.0
    for i, (gram, other) in enumerate(grams):
        weights = np.linalg.solve(whole - gram + ridge, right - other)
        total += float(np.sum((targets[fold == i] - design[fold == i] @ weights) ** 2))
    return total / targets.size


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
    if not any(scored(record, at, plan.horizon).any() for record, at in zip(plan.records, usable, strict=True)):
        return f"the training part, {rows} samples, is too short to look {plan.horizon} ahead in it"
    return None


def _refused(plan: Any, why: str) -> dict[str, Any]:
    note = f"No neural model was fitted: {why}; the forecast is a baseline's."
    return {
        "kind": "neural", "delays": (), "parameters": (), "profiles": (), "trained": None, "model": None, "notes": (note,),
        "first": max(1, min(record.train for record in plan.records) // 3), "widen": 1.0, "validated": None,
    }  # fmt: skip
