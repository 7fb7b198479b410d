"""`fit_series`: from samples to estimates, forecasts and whether to believe them."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ._assemble import Plan, assembled
from ._mechanism_fit import delay_ranges, fit_mechanism
from ._mechanisms import Mechanism, Typical, named, of_field
from ._neural_fit import fit_neural
from ._record import Record, dominant_period, filled
from ._result import Samples, SeriesFit
from ._samples import samples_of
from ._stages import Stages, asked
from ._transforms import Transform, chosen

_NEARLY = 0.25
"""Times are called evenly spaced where no step differs by more than this share from the usual one."""

Progress = Callable[[str, float | None, str], None]


def fit_series(
    t: Any,
    y: Any,
    *,
    model: str | Mechanism | Callable | None = None,
    params: dict[str, Any] | None = None,
    inputs: Any = None,
    delays: int | str | Sequence[float] = "auto",
    delay_bounds: Any = None,
    transform: str = "auto",
    season: int | None = None,
    horizon: int | None = None,
    holdout: float = 0.25,
    seeds: int = 5,
    minutes: float | None = None,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
    folder: str | os.PathLike | None = None,
    partial: Callable[[SeriesFit], None] | None = None,
) -> SeriesFit:
    """Fits a delay equation to a time series: delays and parameters with intervals, a forecast, and what to believe of both.

    **Arguments:**

    - `t`, `y`: increasing times (n,) and values (n,) or (n, d), NaN for missing ones. Lists of arrays are several series of
      the same kind, fitted together.
    - `model`: the name of a known mechanism ("nicholson", "hutchinson", "mackey-glass", "delayed-feedback", "predator-prey",
      "epidemic"), a [`lagrax.series.Mechanism`][], a vector field `field(t, y, delayed, params)` (with inputs `field(t, y,
      delayed, params, inputs)`), or None or "neural" for a neural delay equation.
    - `params`: where to start looking for the parameters, and for delays by their names ("tau"). For a vector field it says
      which parameters there are: `{"r": 1.0}`, or with bounds `{"r": (1.0, 0.0, 5.0)}`.
    - `inputs`: exogenous columns (n, m), linear between samples.
    - `delays`: how many, or where each of them starts; "auto" is what the mechanism has, one for a vector field, and as many
      as pay for a neural model.
    - `delay_bounds`: (low, high), or such a pair for each delay, in units of time; by default up to ¾ of the main period.
    - `transform`: "log", "sqrt", "none", or "auto".
    - `season`: samples in a season, for the seasonal baseline and the neural model; by default the dominant period for the
      baseline, and none for the model.
    - `horizon`: samples to forecast; by default about one dominant period.
    - `holdout`: the share of the record, its end, that scores the forecasts.
    - `seeds`: members of the neural ensemble. `minutes`: its budget.
    - `names`: of the columns.
    - `progress`: called as `progress(stage, fraction, text)`.
    - `folder`: where to keep the stages that are done, or None. The same call with the same folder goes on where one was
      stopped, to the very numbers of one that was not; `minutes` may differ.
    - `partial`: called after each stage with what is known by then. Its `missing` names the stages to come.

    **Returns:**

    A [`lagrax.series.SeriesFit`][].
    """
    samples, notes = samples_of(t, y, inputs, names)
    _check_numbers(season, horizon, holdout, seeds, minutes)
    tell: Progress = (lambda stage, fraction, text: None) if progress is None else progress
    tell("reading", None, "looking for a period")
    mechanism = _mechanism_of(model, params, delays, samples)
    way = chosen(_transform_name(transform, mechanism), samples.y[_training_rows(samples, holdout)], samples.y)
    records = _records(samples, way, holdout)
    _check_training(records, samples.names)
    period = _period_of(records)
    horizon = _horizon_of(horizon, records, period)
    plan = Plan(samples, records, way, period, horizon, season)
    notes += _uneven(records, mechanism)
    settings = {
        "model": "neural" if mechanism is None else mechanism.name, "transform": way.name, "season": season,
        "horizon": horizon, "holdout": holdout, "seeds": seeds, "minutes": minutes, "params": params,
        "delay_bounds": _listed(delay_bounds), "delays": delays if isinstance(delays, str | int) else list(delays),
        "period": None if period is None else period * records[0].step,
    }  # fmt: skip
    whole = lambda found: assembled(plan, found, notes, settings)
    report = (lambda found: None) if partial is None else lambda found: partial(whole(found))
    made_of = asked(samples.checksum(), "neural" if mechanism is None else mechanism, {**settings, "minutes": None})
    stages = Stages(folder, made_of, tell, report)
    if mechanism is None:
        found = fit_neural(plan, delays, delay_bounds, season, seeds, minutes, stages)
    else:
        found = _with_mechanism(plan, mechanism, params, delays, delay_bounds, stages)
    tell("forecast", None, "forecasts and baselines")
    return whole(found)


def _mechanism_of(model: Any, params: Any, delays: Any, samples: Samples) -> Mechanism | None:
    columns = samples.y.shape[1]
    if model is None or model == "neural":
        if params:
            raise ValueError("params without a mechanism, expected none: a neural model has no named parameters")
        return None
    count = len(delays) if isinstance(delays, Sequence) and not isinstance(delays, str) else delays
    if isinstance(model, str):
        found = named(model, columns)
    elif isinstance(model, Mechanism):
        found = model
    elif callable(model):
        given = {name: value for name, value in (params or {}).items() if not name.startswith("tau")}
        found = of_field(model, given, 1 if count == "auto" else int(count))
    else:
        raise ValueError(
            f"model is a {type(model).__name__}, expected a name, a Mechanism or a function: see the documentation"
        )
    if count not in ("auto", len(found.delays)):
        raise ValueError(
            f"delays = {delays!r}, and {found.name} has {len(found.delays)}, expected as many: pass 'auto', or another field"
        )
    known = [*found.delays, *(parameter.name for parameter in found.parameters)]
    unknown = [name for name in params or {} if name not in known]
    if unknown:
        raise ValueError(f"params has {unknown[0]!r}, expected names of {found.name}: {', '.join(known)}")
    _check_field(found, columns, samples.inputs)
    return found


def _check_field(mechanism: Mechanism, columns: int, inputs: np.ndarray | None) -> None:
    """Calls the field once with ones: what it raises, or returns in another shape, is said before anything is compiled."""
    state = np.ones(columns)
    delayed = state if len(mechanism.delays) == 1 else tuple(state for _ in mechanism.delays)
    values = {parameter.name: np.asarray(parameter.start) for parameter in mechanism.parameters}
    more = () if inputs is None else (inputs[0],)
    try:
        slope = jax.eval_shape(lambda *a: mechanism.field(*a), np.asarray(0.0), state, delayed, values, *more)
        shape = np.shape(slope)
    except Exception as error:
        said = str(error).split("\n")[0]
        raise ValueError(
            f"the field {mechanism.name} raised {type(error).__name__} ({said}), expected y' from (t, y, delayed, params"
            f"{', inputs' if more else ''}): correct it"
        ) from None
    if shape != (columns,):
        raise ValueError(
            f"the field {mechanism.name} returned shape {shape}, expected ({columns},): one slope for each column"
        )


def _with_mechanism(
    plan: Plan, mechanism: Mechanism, params: Any, delays: Any, bounds: Any, stages: Stages
) -> dict[str, Any]:
    with jax.enable_x64(True):
        count = len(mechanism.delays)
        ranges = delay_ranges(plan.records, count, plan.period, bounds)
        values = np.concatenate([plan.transform.inverse(record.u[: record.train]) for record in plan.records])
        typical = Typical.of(values, (ranges.period or 20.0 * plan.records[0].step) / (2 * math.pi))
        starts = {parameter.name: parameter.guess(typical) for parameter in mechanism.parameters}
        middle = np.exp(np.log(ranges.allowed).mean(axis=1))
        if isinstance(delays, Sequence) and not isinstance(delays, str):
            middle = np.array([float(delay) for delay in delays])
        starts |= {name: float(delay) for name, delay in zip(mechanism.delays, middle, strict=True)}
        given = {
            name: float(value[0] if isinstance(value, tuple | list) else value) for name, value in (params or {}).items()
        }
        guesses = (
            [starts] if not given or all(starts[name] == given[name] for name in given) else [starts, {**starts, **given}]
        )
        found = fit_mechanism(mechanism, guesses, plan.records, plan.transform, ranges, stages)
    return {
        "kind": mechanism.name, "delays": found.delays, "parameters": found.parameters, "profiles": found.profiles,
        "trained": found.trained, "model": found.model, "notes": found.notes, "first": found.model.past - 1, "widen": 1.0,
        "validated": None,
    }  # fmt: skip


def _transform_name(given: str, mechanism: Mechanism | None) -> str:
    return given if given != "auto" or mechanism is None else mechanism.transform


def _training_rows(samples: Samples, holdout: float) -> np.ndarray:
    return np.concatenate([np.arange(a, a + _train(b - a, holdout)) for _, a, b in samples.groups])


def _train(rows: int, holdout: float) -> int:
    return rows - max(1, round(holdout * rows))


def _records(samples: Samples, transform: Transform, holdout: float) -> list[Record]:
    found = []
    for _, a, b in samples.groups:
        t, seen, train = samples.t[a:b], transform.forward(samples.y[a:b]), _train(b - a, holdout)
        inputs = None if samples.inputs is None else _filled_apart(t, samples.inputs[a:b], train)
        found.append(Record(t, seen, _filled_apart(t, seen, train), inputs, train))
    return found


def _filled_apart(t: np.ndarray, y: np.ndarray, train: int) -> np.ndarray:
    """Gaps of the training part are filled without what comes after it."""
    if np.isnan(y[:train]).all(axis=0).any():
        return filled(t, y)
    return np.concatenate([filled(t[:train], y[:train]), filled(t, y)[train:]])


def _check_training(records: list[Record], names: tuple[str, ...]) -> None:
    values = np.concatenate([record.seen[: record.train] for record in records])
    for name, column in zip(names, values.T, strict=True):
        known = column[~np.isnan(column)]
        if len(known) == 0 or known.min() == known.max():
            what = "has no value" if len(known) == 0 else "is constant"
            raise ValueError(
                f"the column {name} {what} before the part held out, expected one that changes there: choose a smaller "
                "holdout"
            )


def _uneven(records: list[Record], mechanism: Mechanism | None) -> list[str]:
    """A note if samples are not evenly spaced: all but mechanisms count in samples."""
    steps = np.concatenate([np.diff(record.t) / record.step for record in records])
    if np.abs(steps - 1).max() <= _NEARLY:
        return []
    who = "the baselines count" if mechanism is not None else "the neural model and the baselines count"
    span = f"steps of {steps.min():.2g} to {steps.max():.2g} times the usual one"
    return [f"The times are not evenly spaced ({span}): {who} in samples."]


def _period_of(records: list[Record]) -> float | None:
    """Of the longest training part, in samples of the first series' usual step."""
    record = max(records, key=lambda record: record.train).training()
    even = np.arange(record.t[0], record.t[-1], record.step)
    found = dominant_period(np.stack([np.interp(even, record.t, column) for column in record.u.T], axis=1))
    return None if found is None else found * record.step / records[0].step


def _horizon_of(horizon: int | None, records: list[Record], period: float | None) -> int:
    room = max(len(record.t) - record.train for record in records)
    if horizon is None:
        return max(1, min(round(period) if period is not None else 12, room // 2))
    if horizon > room:
        raise ValueError(
            f"horizon = {horizon}, and the hold-out has {room} samples, expected no more: a forecast is scored there; raise "
            "holdout, or forecast further with the result's predict"
        )
    return horizon


def _check_numbers(season, horizon, holdout, seeds, minutes) -> None:
    count = lambda x: isinstance(x, int | np.integer) and not isinstance(x, bool) and x > 0
    for name, value, needed in (("season", season, False), ("horizon", horizon, False), ("seeds", seeds, True)):
        if not (count(value) or (value is None and not needed)):
            raise ValueError(f"{name} = {value!r}, expected a positive whole number: such as 12")
    if not 0.05 <= holdout <= 0.5:
        raise ValueError(f"holdout = {holdout!r}, expected a share between 0.05 and 0.5: such as 0.25")
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes = {minutes!r}, expected a positive number or None: such as 5")


def _listed(bounds: Any) -> Any:
    return None if bounds is None else np.asarray(bounds, float).tolist()
