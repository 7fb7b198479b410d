"""What fitting a series gives back: estimates, scores, forecasts, and all that a report needs. Plain NumPy, no numerics."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

METHODS = ("model", "naive", "seasonal_naive", "ar")
"""Who forecasts: the fitted model and the three baselines, which are always computed."""

LEVELS = np.array([0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975])
"""The quantiles of a forecast; 0.025 and 0.975 bound the 95 % interval."""

VERDICTS = ("identified", "predictive only", "at bound")


@dataclasses.dataclass(frozen=True)
class Alias:
    """Another value that explains the data nearly as well, or better, without being the delay that is reported.

    `kind`: "zero" (x(t) − x(t − ε) is a derivative), "period" (last cycle's value: a seasonal-naive forecast), "embedding"
    (another local minimum of the loss: on a limit cycle many delays tell the same).
    """

    value: float
    kind: str


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A delay or a parameter with its 95 % interval (None where there is none), in the units of the data.

    `verdict`: for delays one of `VERDICTS`; None for parameters, and for delays of a fit that is not finished.
    """

    name: str
    estimate: float
    low: float | None
    high: float | None
    verdict: str | None = None
    aliases: tuple[Alias, ...] = ()


@dataclasses.dataclass(frozen=True)
class Score:
    """How a method did on the hold-out, over all origins, horizons and columns.

    `mase`: mean absolute error over that of the naive one-step forecast in the training part, a column at a time. `rmse`: in
    the units of the data. `coverage95`: the share of values inside their 95 % interval; None where it was not computed.
    """

    mase: float
    rmse: float
    coverage95: float | None = None


@dataclasses.dataclass(frozen=True)
class Holdout:
    """The last part of the record, forecast from rolling origins by methods that never saw it.

    `horizon`: samples ahead. `origins`: how many. `scores`: by method (see `METHODS`); None where there is no such forecast.
    """

    horizon: int
    origins: int
    scores: dict[str, Score | None]


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Quantiles of the future: `t` (n,), `levels` (q,), `quantiles` (q, n, d), in the units of the data."""

    t: np.ndarray
    levels: np.ndarray
    quantiles: np.ndarray

    @property
    def median(self) -> np.ndarray:
        """(n, d)."""
        return self.quantiles[int(np.argmin(np.abs(self.levels - 0.5)))]


@dataclasses.dataclass(frozen=True)
class Profile:
    """The loss over one delay, all else fitted anew at each: `delays` (k,), `cost` (k,), relative to its lowest."""

    name: str
    delays: np.ndarray
    cost: np.ndarray


@dataclasses.dataclass(frozen=True)
class Samples:
    """What was fitted. `t` (n,), `y` (n, d) with NaN for missing values, `inputs` (n, m) or None.

    `groups`: (label, first row, row after the last) of each series; one entry, labelled "", for a single one. Times increase
    inside a group. `unit`: of time, as given by whoever read the data ("" if unknown).
    """

    t: np.ndarray
    y: np.ndarray
    inputs: np.ndarray | None
    names: tuple[str, ...]
    input_names: tuple[str, ...]
    unit: str
    groups: tuple[tuple[str, int, int], ...]

    def checksum(self) -> str:
        """SHA-256 of all numbers."""
        parts = [self.t, self.y] + ([] if self.inputs is None else [self.inputs])
        return hashlib.sha256(b"".join(np.ascontiguousarray(part, "<f8").tobytes() for part in parts)).hexdigest()


@dataclasses.dataclass(frozen=True)
class SeriesFit:
    """The result of [`lagrax.fit_series`][].

    - `kind`: "nicholson", "hutchinson", …, "neural", or the name of the user's field.
    - `delays`, `parameters`: estimates with intervals; delays with a verdict and their aliases.
    - `holdout`: scores of the model and the baselines; `chosen`: whose forecast is the default, one of `METHODS`.
    - `forecasts`: by method, from the end of the record (of its last group); `forecast`: that of `chosen`.
    - `fitted`, `residuals`: (n, d), predictions one window ahead inside the record and what they miss; NaN where there is
      no past to predict from.
    - `profiles`: the loss over each delay.
    - `model`: the trained `eqx.Module`, or None where the model was refused.
    - `samples`, `settings`: what was fitted, and how; `notes`: sentences for the reader.
    - `forecasters`: by method, a module that forecasts any horizon; `lagrax.save` can hold them.
    - `missing`: the stages that were not reached, in a result that was asked for on the way; else empty.
    """

    kind: str
    delays: tuple[Estimate, ...]
    parameters: tuple[Estimate, ...]
    holdout: Holdout
    chosen: str
    forecasts: dict[str, Forecast]
    fitted: np.ndarray
    residuals: np.ndarray
    profiles: tuple[Profile, ...]
    model: Any
    samples: Samples
    settings: dict[str, Any]
    notes: tuple[str, ...]
    forecasters: dict[str, Callable[[int], Forecast]]
    missing: tuple[str, ...] = ()

    @property
    def forecast(self) -> Forecast:
        return self.forecasts[self.chosen]

    def predict(self, horizon: int, method: str | None = None) -> Forecast:
        """The forecast `horizon` samples beyond the end of the record, by `method` or the chosen one."""
        method = self.chosen if method is None else method
        if method not in self.forecasters:
            raise ValueError(f"method = {method!r}, expected one of {', '.join(self.forecasters)}: choose one of those")
        if not isinstance(horizon, int | np.integer) or isinstance(horizon, bool) or horizon < 1:
            raise ValueError(f"horizon = {horizon!r}, expected a positive number of samples: such as 24")
        return self.forecasters[method](int(horizon))

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and None: what programs read."""
        scores = {name: None if score is None else dataclasses.asdict(score) for name, score in self.holdout.scores.items()}
        samples = self.samples
        data = {
            "rows": len(samples.t),
            "columns": list(samples.names),
            "inputs": list(samples.input_names),
            "groups": [label for label, _, _ in samples.groups],
            "unit": samples.unit,
            "missing": int(np.isnan(samples.y).sum()),
            "checksum": samples.checksum(),
        }
        found = {
            "kind": self.kind,
            "missing": list(self.missing),
            "delays": [dataclasses.asdict(estimate) for estimate in self.delays],
            "parameters": [dataclasses.asdict(estimate) for estimate in self.parameters],
            "holdout": {**scores, "horizon": self.holdout.horizon, "origins": self.holdout.origins},
            "chosen": self.chosen,
            "data": data,
            "settings": self.settings,
            "notes": list(self.notes),
        }
        return _plain(found)


def _plain(item: Any) -> Any:
    """NumPy's numbers and arrays as Python's; what is not finite as None, which JSON has no other word for."""
    if isinstance(item, dict):
        return {str(key): _plain(value) for key, value in item.items()}
    if isinstance(item, list | tuple | np.ndarray):
        return [_plain(value) for value in item]
    if isinstance(item, bool | np.bool_):
        return bool(item)
    if isinstance(item, int | np.integer):
        return int(item)
    if isinstance(item, float | np.floating):
        return float(item) if np.isfinite(item) else None
    return item
