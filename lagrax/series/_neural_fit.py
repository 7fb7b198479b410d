"""Fitting a neural delay equation, where there is no mechanism."""

from typing import Any

FEWEST_NEURAL = 80
"""Fewer rows of training are refused: on 21 points a neural delay equation is catastrophic, an autoregression is not."""


def fit_neural(
    plan: Any, delays: Any, bounds: Any, season: Any, seeds: int, minutes: float | None, tell: Any
) -> dict[str, Any]:
    """What `fit_series` needs of a model; with `model` None where the record is too short for one."""
    rows = sum(record.train for record in plan.records)
    if rows < FEWEST_NEURAL:
        return _refused(rows)
    raise NotImplementedError("neural models of series are not there yet: give a mechanism")


def _refused(rows: int) -> dict[str, Any]:
    note = (
        f"No neural model was fitted: the training part has {rows} samples, and at least {FEWEST_NEURAL} are needed; the "
        "forecast is a baseline's."
    )
    return {
        "kind": "neural", "delays": (), "parameters": (), "profiles": (), "trained": None, "model": None, "notes": (note,),
        "first": max(1, rows // 3), "widen": 1.0, "validated": None,
    }  # fmt: skip
