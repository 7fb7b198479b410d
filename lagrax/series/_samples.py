"""What `fit_series` is given, checked with one sentence each, and put in order."""

from typing import Any

import numpy as np

from ._result import Samples

MOST_ROWS = 20_000
"""Longer records are fitted on their last rows, and the result says so."""

FEWEST_ROWS = 12


def samples_of(t: Any, y: Any, inputs: Any, names: Any, unit: str = "") -> tuple[Samples, list[str]]:
    """The checked samples, and notes for the reader. Lists of arrays are several groups."""
    several = isinstance(y, list | tuple) and len(y) > 0 and np.ndim(y[0]) > 0
    ts, ys = (list(t) if several else [t]), (list(y) if several else [y])
    more = [None] * len(ys) if inputs is None else (list(inputs) if several else [inputs])
    if len(ts) != len(ys) or len(more) != len(ys):
        raise ValueError(
            f"got {len(ts)} groups of times, {len(ys)} of values and {len(more)} of inputs, expected as many of each: pass "
            "lists of equal length"
        )
    parts, notes = [], []
    for one in zip(ts, ys, more, strict=True):
        part, dropped = _newest(*_checked(*one))
        parts.append(part)
        if dropped:
            notes.append(f"The record has {dropped + MOST_ROWS:,} rows; the last {MOST_ROWS:,} were fitted.")
    if len({part[1].shape[1] for part in parts}) > 1:
        raise ValueError("the groups have different numbers of columns, expected the same: choose columns that all have")
    stops = np.cumsum([len(part[0]) for part in parts])
    labels = [""] if not several else [str(i + 1) for i in range(len(parts))]
    columns = parts[0][1].shape[1]
    found = Samples(
        t=np.concatenate([part[0] for part in parts]),
        y=np.concatenate([part[1] for part in parts]),
        inputs=None if inputs is None else np.concatenate([part[2] for part in parts]),
        names=_names(names, columns),
        input_names=() if inputs is None else tuple(f"input {i + 1}" for i in range(parts[0][2].shape[1])),
        unit=unit,
        groups=tuple(
            (label, int(stop - len(part[0])), int(stop)) for label, part, stop in zip(labels, parts, stops, strict=True)
        ),
    )
    _check_columns(found)
    return found, notes


def _checked(t: Any, y: Any, inputs: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    t, y = _numbers(t, "t"), _numbers(y, "y")
    y = y[:, None] if y.ndim == 1 else y
    if t.ndim != 1 or y.ndim != 2 or len(t) != len(y):
        raise ValueError(
            f"got t of shape {t.shape} and y of shape {y.shape}, expected (n,) and (n, d): one row for each time"
        )
    if not np.isfinite(t).all():
        raise ValueError(f"row {int(np.flatnonzero(~np.isfinite(t))[0])} has no time, expected one for each row: drop it")
    steps = np.diff(t)
    if (steps == 0).any():
        raise ValueError(
            f"the time {t[:-1][steps == 0][0]:g} occurs twice, expected increasing times: average duplicates, or fit "
            "several series as groups"
        )
    if (steps < 0).any():
        raise ValueError(
            f"the times go back after {t[:-1][steps < 0][0]:g}, expected increasing times: sort the rows by time"
        )
    if np.isinf(y).any():
        raise ValueError("a value is infinite, expected finite numbers or NaN for missing ones: replace it")
    if inputs is not None:
        inputs = _numbers(inputs, "inputs")
        inputs = inputs[:, None] if inputs.ndim == 1 else inputs
        if inputs.ndim != 2 or len(inputs) != len(t):
            raise ValueError(f"inputs have shape {inputs.shape}, expected ({len(t)}, m): one row for each time")
        if not np.isfinite(inputs).any(axis=0).all() or np.isinf(inputs).any():
            raise ValueError("an input column is empty or infinite, expected numbers: drop the column")
    if len(t) < FEWEST_ROWS:
        raise ValueError(f"got {len(t)} samples, expected at least {FEWEST_ROWS}: a delay cannot be seen in fewer")
    return t, y, inputs


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        return np.array(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is not an array of numbers, expected one: NaN for missing values") from None


def _newest(t, y, inputs):
    """The last rows, without rows at either end where a column is missing, and how many rows were left out."""
    seen = np.flatnonzero(~np.isnan(y).any(axis=1))
    if len(seen) < FEWEST_ROWS:
        raise ValueError(
            f"only {len(seen)} rows have a value in every column, expected at least {FEWEST_ROWS}: choose other columns"
        )
    keep = slice(max(int(seen[0]), int(seen[-1]) + 1 - MOST_ROWS), int(seen[-1]) + 1)
    dropped = max(0, int(seen[-1]) + 1 - int(seen[0]) - MOST_ROWS)
    if np.isnan(y[keep][0]).any():
        keep = slice(int(seen[seen >= keep.start][0]), keep.stop)
    return (t[keep], y[keep], None if inputs is None else inputs[keep]), dropped


def _names(names: Any, columns: int) -> tuple[str, ...]:
    if names is None:
        return ("y",) if columns == 1 else tuple(f"y{i + 1}" for i in range(columns))
    found = (names,) if isinstance(names, str) else tuple(str(name) for name in names)
    if len(found) != columns:
        raise ValueError(f"got {len(found)} names for {columns} columns, expected as many: name each column")
    return found


def _check_columns(samples: Samples) -> None:
    for name, column in zip(samples.names, samples.y.T, strict=True):
        if np.nanmax(column) == np.nanmin(column):
            raise ValueError(f"the column {name} is constant, expected one that changes: there is nothing to explain")
