"""Two outcomes of one pair, with kernels and without: the same numbers, or the same failure."""

from typing import Any

import jax
import numpy as np

from .transforms import Child, Outcome

DOUBLE, SINGLE = 1e-9, 2e-4
"""How far numbers may be apart, relative to the largest of their array, or to 1 if that is less."""
SPREAD = 10
"""Or by how many times as much as rounding alone makes them."""


def verdict(child: Child, name: str, outcome: Outcome, double: bool) -> dict[str, Any]:
    """What there is to say about a pair."""
    said: dict[str, Any] = {"kernels": outcome.kernels, "compiled": outcome.compiled}
    reference, case = child.reference(name, outcome), child.case
    if outcome.error or (reference is not None and reference.error):
        other = None if reference is None else reference.error
        alike = bool(other) and _kind(outcome.error) == _kind(other) and case.may_raise(name)
        return {**said, "verdict": "failed alike" if alike else "failed", "error": outcome.error, "without": other}
    if reference is None:
        return {**said, "verdict": "no kernel"}
    limit = DOUBLE if double and case.precision == "64" else SINGLE
    distances = _distances(outcome.value, reference.value)
    where, distance = max(distances.items(), key=lambda item: item[1])
    said |= {"verdict": "same", "distance": distance, "where": where if distance else ""}
    if distance > limit:
        # The solve may be such that rounding decides: then it decides among programs without kernels, too.
        spread = _spread(child, name, outcome, reference)
        alike = all(distances[key] <= max(limit, SPREAD * spread[key]) for key in distances)
        said |= {"verdict": "sensitive" if alike else "different", "spread": spread[where]}
    steps = _steps(outcome.value) == _steps(reference.value)
    return {**said, "same steps": steps, "largest": _largest(reference.value), "solved": _solved(reference.value)}


def _spread(child: Child, name: str, outcome: Outcome, reference: Outcome) -> dict[str, float]:
    """How far each array is from itself, computed without kernels in other ways."""
    spread = dict.fromkeys(_distances(reference.value, reference.value), 0.0)
    for other in child.varied(name, outcome):
        for key, distance in _distances(other.value, reference.value).items():
            spread[key] = max(spread[key], distance)
    return spread


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


def _distances(one: Any, other: Any) -> dict[str, float]:
    """How far the arrays of two trees are apart."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    return {jax.tree_util.keystr(path): _apart(np.asarray(x), np.asarray(y)) for (path, x), y in pairs}


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
