"""Fitting a mechanism: bounds from the data, the search, its estimates, and the model that rolls out forecasts."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ._equation import Equation, Windows, cut, origins
from ._identify import aliases, estimates, intervals, locate, profile, verdict
from ._mechanisms import Mechanism, Typical
from ._record import AbstractRoll, Record
from ._result import Estimate, Profile
from ._search import Fits, Search
from ._stages import Stages, unfinished
from ._transforms import Transform

MOST_WINDOWS = 160
STEPS_PER_PERIOD = 16
STAGES = ("training", "fitting", "profile", "bootstrap", "forecast")


class MechanismModel(AbstractRoll):
    """A fitted mechanism. `values` (p,): delays, then parameters; `past`: samples that a forecast starts from."""

    equation: Equation
    values: Float[np.ndarray, " p"]
    past: int = eqx.field(static=True)

    def ahead(self, record: Record, origins: np.ndarray, horizon: int) -> np.ndarray:
        with jax.enable_x64(True):
            windows = _with_inputs_known(cut(record.extended(horizon), origins, self.past, horizon + 1), self.past)
            steps = math.ceil(float(jnp.max(windows.t[:, -1])) / float(self.equation.step))
            equation = dataclasses.replace(self.equation, max_steps=64 * math.ceil((1.5 * steps + 32) / 64))
            return record.inside(np.asarray(_roll(equation, jnp.asarray(self.values), windows)), origins)


def _with_inputs_known(windows: Windows, past: int) -> Windows:
    """Inputs stay at their last value, since nobody knows them ahead of an origin; else scores would be those of a forecast
    that cannot be made."""
    rows = np.minimum(np.arange(windows.inputs.shape[1]), past - 1)
    return eqx.tree_at(lambda w: w.inputs, windows, windows.inputs[:, rows])


@eqx.filter_jit
def _roll(equation: Equation, values, windows: Windows):
    return jax.vmap(lambda window: equation.predict(values, window.y[0], window)[1:])(windows)


@dataclasses.dataclass
class MechanismFit:
    """The models of the training part and of the whole record, with estimates of the latter."""

    trained: MechanismModel
    model: MechanismModel
    delays: tuple[Estimate, ...]
    parameters: tuple[Estimate, ...]
    profiles: tuple[Profile, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Ranges:
    """Where delays are looked for: `allowed` (k, 2) for the estimates, `wide` for the profile, and the period in time."""

    allowed: np.ndarray
    wide: tuple[float, float]
    period: float | None


def delay_ranges(records: list[Record], count: int, period: float | None, bounds: Any) -> Ranges:
    """¾ of the dominant period at most, unless bounds are given: a delay of one period is last cycle's value."""
    step = records[0].step
    length = max(float(record.t[record.train - 1] - record.t[0]) for record in records)
    cycle = period * step if period is not None else length / 3
    most = length / 3
    if bounds is None:
        allowed = np.tile([max(step, 0.03 * cycle), min(0.75 * cycle, most)], (count, 1))
    else:
        allowed = _bounds_of(bounds, count)
        if allowed.max() > most:
            raise ValueError(
                f"a delay may be {allowed.max():g}, and the training part of the record is {length:g} long, expected at "
                "most a third of that: lower the bound, or give a longer record"
            )
    wide = (float(min(allowed.min(), max(step, 0.03 * cycle))), float(max(allowed.max(), min(1.25 * cycle, most))))
    return Ranges(allowed, wide, None if period is None else cycle)


def _bounds_of(bounds: Any, count: int) -> np.ndarray:
    try:
        found = np.array(bounds, float)
        found = np.broadcast_to(found, (count, 2)).copy()
    except (TypeError, ValueError):
        raise ValueError(
            f"delay_bounds = {bounds!r}, expected (low, high), or one pair for each of {count} delays"
        ) from None
    if not ((found[:, 0] > 0) & (found[:, 0] < found[:, 1])).all():
        raise ValueError(f"delay_bounds = {bounds!r}, expected 0 < low < high: in the units of time")
    return found


def fit_mechanism(
    mechanism: Mechanism,
    guesses: list[dict[str, float]],
    records: list[Record],
    transform: Transform,
    ranges: Ranges,
    stages: Stages,
) -> MechanismFit:
    """`guesses`: starts of the delays and parameters, by name."""
    search, weights, past, stride = _search(mechanism, records, transform, ranges)
    names = [*mechanism.delays, *(parameter.name for parameter in mechanism.parameters)]
    count = len(mechanism.delays)
    rows = np.array([[guess[name] for name in names] for guess in guesses])
    told = _Told(stages, mechanism.name, past - 1, names, count)
    told.about(None, (), STAGES)
    trained, whole = _located(search, rows, ranges, weights, count, told)
    search = dataclasses.replace(search, equation=dataclasses.replace(search.equation, step=jnp.asarray(whole.step)))
    everything, profiles = np.ones(len(weights)), []
    for i, name in enumerate(mechanism.delays):
        stages.tell("profile", 0.5 + 0.2 * i / count, f"the loss over {name}")
        curve = lambda i=i, name=name: vars(profile(search, whole, i, name, ranges.wide, rows, everything))
        profiles.append(Profile(**stages.once(f"profile {name}", curve)))
    told.about(whole, profiles, STAGES[3:])
    stages.tell("bootstrap", 0.7, "intervals by block bootstrap")
    length = search.windows.t.shape[1]
    cycle = length / 0.4 if ranges.period is None else ranges.period / records[0].step
    block = max(2, math.ceil(max(cycle, 2 * length) / stride))
    bounds = _all_bounds(search, (ranges.allowed[:, 0], ranges.allowed[:, 1]), count)
    narrow = dataclasses.replace(search, low=bounds[0], high=bounds[1])
    low, high = stages.once("bootstrap", lambda: list(intervals(narrow, whole, block, everything)))
    gain = float(whole.cost[0]) / _cost_of_nothing(search)
    notes = [] if gain <= 0.9 else [f"{mechanism.name} explains the windows hardly better than no change would."]
    make = lambda found: MechanismModel(search.equation, np.asarray(found.values[0]), past)
    stages.tell("bootstrap", 1.0, "done")
    best = whole.values[0]
    return MechanismFit(
        make(trained), make(whole), _judged(mechanism.delays, best, (low, high), profiles, ranges, gain),
        estimates(names[count:], best[count:], low[count:], high[count:]), tuple(profiles), tuple(notes),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Told:
    """What is said of a mechanism while it is fitted."""

    stages: Stages
    kind: str
    first: int
    names: list[str]
    count: int

    def about(self, found: "Located | None", profiles: Sequence[Profile], missing: tuple[str, ...]) -> None:
        """Estimates without intervals and verdicts, which come last."""
        values = () if found is None else found.values[0]
        plain = tuple(Estimate(name, float(value), None, None) for name, value in zip(self.names, values, strict=False))
        known = {"delays": plain[: self.count], "parameters": plain[self.count :], "profiles": tuple(profiles)}
        self.stages.report(unfinished(self.kind, self.first, missing, **known))


@dataclasses.dataclass
class Located(Fits):
    """Fits, best first, with the length of the steps that they were found with."""

    step: float


def _located(search: Search, rows: np.ndarray, ranges: Ranges, weights, count: int, told: _Told) -> tuple[Located, Located]:
    """The fits of the training part, and of the whole record with steps that are short enough for them."""
    allowed, stages = (ranges.allowed[:, 0], ranges.allowed[:, 1]), told.stages

    def solved(found: Fits) -> Fits:
        if not math.isfinite(found.cost[0]):
            raise ValueError(f"{told.kind} could not be solved from any start, expected one that can: give other params")
        return found

    def training() -> dict[str, Any]:
        found = solved(locate(search, count, rows, allowed, weights))
        return vars(found) | {"step": float(_checked_steps(search, found).equation.step)}

    stages.tell("training", 0.0, "compiling, then fitting the training part")
    trained = Located(**stages.once("training", training))
    told.about(trained, (), STAGES[1:])
    finer = dataclasses.replace(search, equation=dataclasses.replace(search.equation, step=jnp.asarray(trained.step)))
    stages.tell("fitting", 0.25, "fitting the whole record")
    begin = np.concatenate([trained.values[:1], rows])
    fitting = lambda: vars(solved(locate(finer, count, begin, allowed, np.ones(len(weights))))) | {"step": trained.step}
    whole = Located(**stages.once("fitting", fitting))
    told.about(whole, (), STAGES[2:])
    return trained, whole


def _judged(names, best: np.ndarray, limits, profiles: list[Profile], ranges: Ranges, gain: float) -> tuple[Estimate, ...]:
    """The delays with their intervals, aliases and verdicts."""
    low, high = limits
    count = len(names)
    taken = [float(delay) for delay in best[:count]]
    others = [aliases(found, taken[i], ranges.period, taken[:i] + taken[i + 1 :]) for i, found in enumerate(profiles)]
    verdicts = [
        verdict(taken[i], float(low[i]), float(high[i]), tuple(ranges.allowed[i]), others[i], gain) for i in range(count)
    ]
    return estimates(names, best[:count], low[:count], high[:count], verdicts, others)


def _search(mechanism: Mechanism, records: list[Record], transform: Transform, ranges: Ranges):
    """The search, the weights of windows (1 in the training part), how many samples of the past, and the stride."""
    step = records[0].step
    cycle = 20.0 if ranges.period is None else ranges.period / step
    # Long enough to tell delays apart, and short enough for what an equation leaves out: at 5 % noise, windows of 0.2, 0.4
    # and 0.8 periods scatter by 0.4, 0.2 and 0.1 % of the delay; on the blowflies longer ones no longer agree.
    length = int(np.clip(round(0.4 * cycle), 4, 16)) + 1
    # Rounded up, so that series alike run the same compiled program.
    past = 8 * math.ceil((ranges.wide[1] / min(record.step for record in records) + 2) / 8)
    stride = max(1, (length - 1) // 2)
    while True:
        at = [origins(record, past, length, stride, ranges.wide[1]) for record in records]
        if sum(map(len, at)) <= MOST_WINDOWS:
            break
        stride = math.ceil(stride * max(sum(map(len, at)) / MOST_WINDOWS, 1.1))
    weights = np.concatenate([rows + length <= record.train for rows, record in zip(at, records, strict=True)]).astype(float)
    if weights.sum() < 6:
        raise ValueError(
            f"the record leaves {int(weights.sum())} windows with {past} samples of past, expected at least 6: lower the "
            "upper delay bound, or give a longer record with fewer gaps"
        )
    parts = [cut(record, rows, past, length) for record, rows in zip(records, at, strict=True) if len(rows)]
    windows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    pieces = max(1, math.ceil(STEPS_PER_PERIOD / cycle))
    # Samples may be further apart than usual, or than those of the first series. (Steps may be halved twice.)
    samples = max(length, math.ceil(float(windows.t[:, -1].max()) / step) + 1)
    equation = Equation(
        mechanism, transform, records[0].inputs is not None, jnp.asarray(step / pieces), 4 * samples * pieces + 16
    )
    training = np.concatenate([record.u[: record.train] for record in records])
    typical = Typical.of(transform.inverse(training), (ranges.period or 20.0 * step) / (2 * math.pi))
    scale = [1.0] * len(mechanism.delays) + [parameter.scale(typical) for parameter in mechanism.parameters]
    low = [ranges.wide[0] * 0.9] * len(mechanism.delays) + [parameter.low for parameter in mechanism.parameters]
    high = [ranges.wide[1] * 1.005] * len(mechanism.delays) + [parameter.high for parameter in mechanism.parameters]
    search = Search(windows, equation, np.array(scale), np.array(low), np.array(high), training.std(axis=0))
    return search, weights, past, stride


def _all_bounds(search: Search, allowed, count: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = search.low.copy(), search.high.copy()
    low[:count], high[:count] = allowed
    return low, high


def _checked_steps(search: Search, found) -> Search:
    """The search with steps so short that halving them changes the loss by less than 2 %."""
    for _ in range(2):
        halved = dataclasses.replace(search.equation, step=search.equation.step / 2)
        costs = [
            dataclasses.replace(search, equation=equation)
            .fit(found.values[:1], starts=found.starts[:1], iterations=0)
            .cost[0]
            for equation in (search.equation, halved)
        ]
        if abs(costs[1] - costs[0]) <= 0.02 * costs[0]:
            break
        search = dataclasses.replace(search, equation=halved)
    return search


def _cost_of_nothing(search: Search) -> float:
    """The loss of the forecast that nothing changes."""
    windows = search.windows
    miss = np.where(windows.seen, windows.y - windows.y[:, :1], 0.0) / search.sd
    return float((miss**2).sum())
