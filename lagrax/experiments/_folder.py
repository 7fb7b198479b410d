"""A run's folder: `<out>/<experiment>/<time>/` with its configuration and, at the end, its outcome."""

import dataclasses
import json
import math
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from ._base import Claim, Figure, Outcome, Table, UserError

CONFIG, METRICS, OUTCOME = "config.json", "metrics.json", "outcome.json"


def create(out: Path, experiment: str) -> Path:
    """A new folder named after the present second, never one that exists."""
    folder = out / experiment / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        where = folder if folder.is_dir() else folder.parent
        raise UserError(f"{where} already exists and nothing is overwritten: try again or choose another --out") from None
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}): choose another folder with --out") from None
    return folder


def runs(parent: Path) -> list[Path]:
    """The runs in the folder of an experiment, oldest first."""
    return sorted(path.parent for path in parent.glob(f"*/{CONFIG}"))


def is_finished(folder: Path) -> bool:
    return (folder / OUTCOME).exists()


def newest_unfinished(out: Path, experiment: str) -> Path | None:
    unfinished = [folder for folder in runs(out / experiment) if not is_finished(folder)]
    return unfinished[-1] if unfinished else None


def write_json(file: Path, value: Any) -> None:
    write_text(file, json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """Atomically: a reader finds the old text or the new, and a killed run leaves no half of it."""
    partial = file.with_name(file.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, file)
    except OSError as error:
        raise UserError(f"{file} cannot be written ({error.strerror})") from None


def _plain(value: Any) -> Any:
    """`value` with null for what JSON has no number for: infinite errors of a model that diverged."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{file.parent} holds no {file.name}: it is not the folder of a run, or of one that ended early"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}): run the experiment again") from None


def write_outcome(folder: Path, outcome: Outcome, seconds: float, resumed: bool) -> None:
    """metrics.json, then the rest; the run counts as finished from then on."""
    write_json(folder / METRICS, outcome.metrics)
    rest = {key: value for key, value in dataclasses.asdict(outcome).items() if key != "metrics"}
    write_json(folder / OUTCOME, {"seconds": seconds, "resumed": resumed, **rest})


def read_outcome(folder: Path) -> tuple[Outcome, str]:
    """What `write_outcome` wrote: the outcome, and in words how long it took."""
    saved = read_json(folder / OUTCOME)
    try:
        tables = [Table(t["title"], tuple(t["columns"]), [tuple(row) for row in t["rows"]]) for t in saved["tables"]]
        claims = [Claim(**claim) for claim in saved["claims"]]
        figures = [Figure(**figure) for figure in saved["figures"]]
        outcome = Outcome(read_json(folder / METRICS), claims, figures, tables, saved["notes"])
        return outcome, f"{saved['seconds']:.1f} s" + (" since it was resumed" if saved["resumed"] else "")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / OUTCOME} is not what lagrax writes ({error!r}): run the experiment again") from None
