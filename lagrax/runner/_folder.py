"""A run's folder: `<out>/<experiment>/<time>/` with its configuration and, at the end, its outcome."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from .._choices import UserError
from ..saving._files import replacing, sole_writer
from ._experiment import Claim, Figure, Outcome, Table

CONFIG, METRICS, OUTCOME, REPORT = "config.json", "metrics.json", "outcome.json", "report.html"
FAILURE = "failure.json"
_NAME = re.compile(r"(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)(?:_(\d+))?")


def create(out: Path, experiment: str, config: dict[str, Any]) -> Path:
    """A new folder with a configuration, never one that exists, whose name comes after those of all other runs."""
    parent = out / experiment
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return _create(parent, config)
    except FileExistsError:
        raise UserError(f"{parent} cannot be made, since a file is in the way: choose another folder with --out") from None
    except OSError as error:
        raise UserError(f"{parent} cannot be written ({error.strerror}): choose another folder with --out") from None


def _create(parent: Path, config: dict[str, Any]) -> Path:
    while True:
        folder = parent / _next_name(parent)
        try:
            folder.mkdir()
        except FileExistsError:  # another process was faster
            continue
        try:
            write_json(folder / CONFIG, config)
        except BaseException:
            folder.rmdir()
            raise
        return folder


def _next_name(parent: Path) -> str:
    """The present second; with a number behind that of the newest run, if a clock that was set back says it is not over."""
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    time, number = max((_order(path) for path in parent.iterdir()), default=("", 0))
    return now if now > time else f"{time}_{number + 1}"


def _order(folder: Path) -> tuple[str, int]:
    found = _NAME.fullmatch(folder.name)
    return (found[1], int(found[2] or 1)) if found else ("", 0)


def runs(parent: Path) -> list[Path]:
    """The runs in the folder of an experiment, oldest first."""
    return sorted((path.parent for path in parent.glob(f"*/{CONFIG}")), key=lambda path: (*_order(path), path.name))


def has_outcome(folder: Path) -> bool:
    """Whether there is something to report on a run."""
    return (folder / OUTCOME).exists()


def is_finished(folder: Path) -> bool:
    return has_outcome(folder) and (folder / REPORT).exists()


def failure(folder: Path) -> str | None:
    """Why a run failed, or None if it did not."""
    file = folder / FAILURE
    return str(read_json(file)["error"]) if file.exists() else None


def newest_unfinished(out: Path, experiment: str) -> Path | None:
    """The run to go on with: not one that failed, which would fail again."""
    unfinished = [path for path in runs(out / experiment) if not is_finished(path) and not (path / FAILURE).exists()]
    return unfinished[-1] if unfinished else None


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Around a run: keeps others from writing into its folder, and notes there if it fails, unless the disk is at fault."""
    with sole_writer(folder):
        (folder / FAILURE).unlink(missing_ok=True)
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            sentence = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            with suppress(OSError):
                write_json(folder / FAILURE, {"error": sentence})
            raise


def write_json(file: Path, value: Any) -> None:
    write_text(file, json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(file: Path, text: str) -> None:
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Atomically: a reader finds the old content or the new, and a killed run leaves no half of it."""
    with replacing(file) as opened:
        opened.write(content)


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


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run, with all that one has."""
    config = read_json(folder / CONFIG)
    needed = ("experiment", "preset", "seeds", "adjoint", "solver", "tolerance", "numbers")
    if not isinstance(config, dict) or any(key not in config for key in needed):
        raise foreign(folder, f"it lacks one of {', '.join(needed)}")
    return config


def foreign(folder: Path, why: str) -> UserError:
    return UserError(
        f"{folder / CONFIG} is not what this version of lagrax writes ({why}): start a new run without --resume"
    )


def write_outcome(folder: Path, outcome: Outcome, seconds: float, resumed: bool) -> None:
    """metrics.json, then the rest; nothing is left to be computed from then on."""
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
