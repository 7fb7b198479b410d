"""Two outcomes of one pair, with kernels and without: the same numbers, or the same failure."""

from typing import Any

import jax
import numpy as np

from .fields import Case
from .transforms import Outcome

DOUBLE, SINGLE = 1e-9, 2e-4
"""How far numbers may be apart, relative to the largest of their array, or to 1 if that is less."""


def verdict(case: Case, outcome: Outcome, reference: Outcome | None, double: bool) -> dict[str, Any]:
    """What there is to say about a pair."""
    said: dict[str, Any] = {"kernels": outcome.kernels, "compiled": outcome.compiled}
    if outcome.error or (reference is not None and reference.error):
        other = None if reference is None else reference.error
        alike = bool(other) and _kind(outcome.error) == _kind(other)
        return {**said, "verdict": "failed alike" if alike else "failed", "error": outcome.error, "without": other}
    if reference is None:
        return {**said, "verdict": "no kernel"}
    limit = DOUBLE if double and case.precision == "64" else SINGLE
    distance, where = _distance(outcome.value, reference.value)
    steps = _steps(outcome.value) == _steps(reference.value)
    if not steps or (case.implicit and case.adaptive):
        # Rounding decided about a step, or about an iteration of a root finder.
        limit = max(limit, 1e-3)
    if case.adaptive and case.output in ("steps", "a function"):
        # Where a step ends is decided by an error estimate, a small difference of large numbers.
        limit = max(limit, 1e-7)
    kind = "same" if distance <= limit else "different"
    said |= {"verdict": kind, "distance": distance, "where": where, "same steps": steps}
    return {**said, "largest": _largest(reference.value), "solved": _solved(reference.value)}


def _kind(error: str) -> str:
    """Its type; what a failed solve raises is of one type within a `jit`, and of another without."""
    return error.split(":")[0].replace("EquinoxRuntimeError", "JaxRuntimeError")


def _steps(value: Any) -> Any:
    return np.asarray(value["counts"]["num_steps"]).tolist() if isinstance(value, dict) and "counts" in value else None


def _solved(value: Any) -> bool:
    """Whether all of it is of solves that reached their end: others prove less."""
    return not ("counts" in value and np.any(value["counts"]["result"]))


def _largest(value: Any) -> float:
    """The largest number, as a sign that there is something to compare."""
    numbers = [x for x in jax.tree.leaves({**value, "counts": None, "ts": None}) if np.issubdtype(x.dtype, np.inexact)]
    return max((float(np.max(np.abs(x), where=np.isfinite(x), initial=0.0)) for x in numbers), default=0.0)


def _distance(one: Any, other: Any) -> tuple[float, str]:
    """(The largest distance of two trees of arrays, in which array.)"""
    worst, place = 0.0, ""
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    for (path, x), y in pairs:
        distance = _apart(np.asarray(x), np.asarray(y))
        if distance > worst:
            worst, place = distance, jax.tree_util.keystr(path)
    return worst, place


def _apart(x: np.ndarray, y: np.ndarray) -> float:
    if x.shape != y.shape or x.dtype != y.dtype:
        return float("inf")
    if x.size == 0:
        return 0.0
    if not np.issubdtype(x.dtype, np.inexact):
        return float(np.any(x != y))
    finite = np.isfinite(y)
    if np.any(np.isfinite(x) != finite) or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf")
    scale = max(1.0, float(np.max(np.abs(y), where=finite, initial=0.0)))
    return float(np.max(np.abs(x[finite] - y[finite]), initial=0.0)) / scale
