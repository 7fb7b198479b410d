"""Which delays pay: a greedy scan with random-feature ridge regression, a cheap stand-in for the network to be trained."""

import dataclasses
from typing import Any

import numpy as np

FEATURES, FOLDS, AHEAD = 80, 5, (1, 2, 4)
GAIN = 0.005
"""A delay that lowers the error by less than this share is not taken."""
MOST_ROWS = 1500


@dataclasses.dataclass
class Scan:
    """Delays in samples, shortest gain last, and for each the candidates (k,) and their errors (k,)."""

    delays: list[int]
    curves: list[tuple[np.ndarray, np.ndarray]]


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
