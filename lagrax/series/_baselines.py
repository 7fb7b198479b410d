"""Forecasts without a delay equation, which any model has to beat: the last value, the last season, an autoregression.

All work on transformed values, a column at a time.
"""

import numpy as np

from ._forecaster import BLOCKS, truth_of
from ._record import AbstractRoll, Record


class Naive(AbstractRoll):
    """The last value stays."""

    def ahead(self, record, origins, horizon):
        return np.repeat(record.u[origins][:, None], horizon, axis=1)


class SeasonalNaive(AbstractRoll):
    """The last season repeats itself."""

    season: int

    def ahead(self, record, origins, horizon):
        ahead = np.arange(1, horizon + 1)
        back = -(-ahead // self.season) * self.season
        rows = origins[:, None] + ahead - back
        return record.u[np.maximum(rows, 0)]


class Autoregression(AbstractRoll):
    """u(i + 1) = c + Σ aₖ u(i − k), a column at a time. `coefficients` (d, 1 + order), the constant first."""

    coefficients: np.ndarray

    def ahead(self, record, origins, horizon):
        order = self.coefficients.shape[1] - 1
        rows = origins[:, None] - np.arange(order)
        past = record.u[np.maximum(rows, 0)]  # (origins, order, d), newest first
        ahead = []
        for _ in range(horizon):
            new = self.coefficients[:, 0] + np.einsum("okd,dk->od", past, self.coefficients[:, 1:])
            ahead.append(new)
            past = np.concatenate([new[:, None], past[:, :-1]], axis=1)
        return record.inside(np.stack(ahead, axis=1), origins)


def fit_autoregression(records: list[Record], most: int | None = None) -> Autoregression:
    """By least squares, with the order of the lowest AIC on the rows that all orders can use.

    Rows whose value is missing are left out; gaps in the past of others are bridged by straight lines.
    """
    rows = sum(len(record.t) for record in records)
    most = min(rows // 5, max(int(10 * np.log10(rows)), 2)) if most is None else most
    most = max(1, min(most, max(len(record.t) for record in records) // 3))
    columns = [_one_column(records, i, most) for i in range(records[0].u.shape[1])]
    longest = max(len(column) for column in columns)
    return Autoregression(np.stack([np.pad(column, (0, longest - len(column))) for column in columns]))


def _one_column(records: list[Record], i: int, most: int) -> np.ndarray:
    lagged = lambda u: np.lib.stride_tricks.sliding_window_view(u, most + 1)[:, ::-1]
    long = [record for record in records if len(record.t) > most]
    tables = [lagged(record.u[:, i])[~np.isnan(record.seen[most:, i])] for record in long]
    table = np.concatenate(tables)
    if len(table) < most + 3:
        return np.array([0.0, 1.0])
    best, lowest = np.array([0.0, 1.0]), np.inf
    for order in range(1, most + 1):
        design = np.concatenate([np.ones((len(table), 1)), table[:, 1 : order + 1]], axis=1)
        found = np.linalg.lstsq(design, table[:, 0], rcond=None)[0]
        variance = np.mean((table[:, 0] - design @ found) ** 2)
        # With the correction for few rows (AICc); the variance counts as a parameter.
        count, free = order + 2, len(table) - order - 3
        aic = len(table) * np.log(max(variance, 1e-300)) + 2 * count + 2 * count * (count + 1) / max(free, 1)
        if aic < lowest:
            best, lowest = found, aic
    return best


def forecast_apart(record: Record, rows: np.ndarray, group: np.ndarray, horizon: int) -> np.ndarray:
    """Forecasts by autoregressions, each fitted to the training part without what it forecasts: the rows of one `group`."""
    found = np.zeros((len(rows), horizon, record.u.shape[1]))
    for number in np.unique(group):
        seen = record.seen[: record.train].copy()
        mine = rows[group == number]
        for start, stop in _runs(mine):
            seen[start + 1 : stop + 2] = np.nan
        left = Record(record.t[: record.train], seen, record.u[: record.train], None, record.train)
        found[group == number] = fit_autoregression([left]).ahead(record, mine, horizon)
    return found


def _runs(rows: np.ndarray) -> list[tuple[int, int]]:
    """The first and last of each block, of which there are two, the farther apart the gap between them."""
    if len(rows) < 2:
        return [(int(row), int(row)) for row in rows]
    gap = int(np.argmax(np.diff(rows)))
    return [(int(rows[0]), int(rows[gap])), (int(rows[gap + 1]), int(rows[-1]))]


def widening(method: AbstractRoll, record: Record, rows: np.ndarray, horizon: int) -> float:
    """How much larger the errors of an autoregression are on what it was not fitted to: by blocks, as those of a network."""
    rows = rows[rows + horizon < record.train]
    if len(rows) < 2 * BLOCKS:
        return 1.0
    group = np.arange(len(rows)) * BLOCKS // len(rows) % (BLOCKS // 2)
    truth = truth_of(record.seen, rows, horizon)
    apart = np.abs(truth - forecast_apart(record, rows, group, horizon))
    return float(max(1.0, np.nanmean(apart) / np.nanmean(np.abs(truth - method.ahead(record, rows, horizon)))))
