"""The folder of a fit: made when it starts, whole when it ends, and nothing but the log where it failed; its models."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax

from .._choices import UserError
from ..runner._folder import CONFIG, REPORT, create, read_json, runs, write_json
from ..saving._files import sole_writer
from ..series import MECHANISMS, TWO_COLUMN_EPIDEMIC, SeriesFit
from ..series._stages import FILE as STAGES
from . import _model_file
from ._request import Request, from_json

FIT, FORECAST, MODEL, FORECASTERS, LOG = "fit.json", "forecast.csv", "model.lagrax", "forecasters.lagrax", "log.txt"
_FIGURES = [
    f"{stem}.{end}"
    for stem in ("forecast", "fit", "profile", "phase", "autocorrelation", "quantiles")
    for end in ("png", "pdf")
]
_OWN = (CONFIG, REPORT, FIT, FORECAST, MODEL, FORECASTERS, STAGES, *_FIGURES)


def new(out: Path | None, config: dict[str, Any]) -> Path:
    """The folder `out`, which must not hold a fit; without, one of its own in runs/fit."""
    if out is None:
        return create(Path("runs"), "fit", config)
    _check_free(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / CONFIG, config)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{out} cannot be made, since a file is in the way: choose another folder with --out") from None
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): choose another folder with --out") from None
    return out


def _check_free(out: Path) -> None:
    if is_finished(out):
        raise UserError(f"{out} holds a fit already ({out / REPORT}): choose another folder with --out, or remove it")
    if (out / CONFIG).exists():
        raise UserError(
            f"{out} holds a fit that is not finished: go on with --resume {out}, or choose another folder with --out"
        )
    taken = [name for name in _OWN if (out / name).exists()]
    if taken:
        raise UserError(
            f"{out} has a file {taken[0]} already, which the fit would replace: choose another folder with --out"
        )


def is_finished(folder: Path) -> bool:
    """Whether all stages are done; fit.json is written last, and that of an interrupted fit says what is missing."""
    if not (folder / FIT).exists():
        return False
    found = read_json(folder / FIT)
    return not (isinstance(found, dict) and found.get("missing"))


def unfinished(given: str, out: Path | None) -> Path:
    """The run to go on with: the one in the folder given, else `out`, else the newest in runs/fit that did not end."""
    folder = Path(given) if given else out
    if folder is None:
        open_ones = [run for run in runs(Path("runs") / "fit") if not is_finished(run)]
        if not open_ones:
            raise UserError("runs/fit holds no unfinished fit: leave --resume out to start anew")
        return open_ones[-1]
    if is_finished(folder):
        raise UserError(f"the fit in {folder} is finished: its report is {folder / REPORT}")
    if not (folder / CONFIG).exists():
        failed = ", and the fit there failed (its log.txt says why)" if (folder / LOG).exists() else ""
        raise UserError(f"{folder} holds no unfinished fit{failed}: leave --resume out to start anew")
    return folder


def request_of(folder: Path) -> Request:
    saved = read_json(folder / CONFIG)
    if not isinstance(saved, dict) or "request" not in saved:
        raise UserError(f"{folder / CONFIG} is not of a fit: name the folder of one")
    return from_json(saved["request"], folder / CONFIG)


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Keeps others from writing into the folder; if the fit fails, only its log stays. A kill leaves what there is."""
    try:
        with sole_writer(folder):
            try:
                yield
            except OSError:  # a full disk: what is there can be gone on with
                raise
            except Exception:
                for name in _OWN:
                    with suppress(OSError):
                        (folder / name).unlink(missing_ok=True)
                raise
    except BlockingIOError as error:
        raise UserError(str(error)) from None


def save_models(folder: Path, fit: SeriesFit) -> list[str]:
    """Writes the trained model, and what forecasts any horizon, as far as files can hold them. Returns their names."""
    from .. import save

    saved = []
    for name, value in ((MODEL, fit.model), (FORECASTERS, fit.forecasters)):
        if value is None:
            continue
        try:
            save(folder / name, value)
        except TypeError:  # a function without a name, as a lambda is: the forecast itself has been written
            continue
        saved.append(name)
    return saved


def load_forecasters(folder: Path, model: str | None) -> dict[str, Any]:
    """By method, what forecasts any horizon. The code of a mechanism is lagrax's own, or in the user's file."""
    from .. import ModelFileError, load

    file = folder / FORECASTERS
    if not file.exists():
        raise UserError(
            f"{folder} holds no {file.name}, since a file cannot hold its model: fit again with a longer --horizon"
        )
    fields = [mechanism.field for mechanism in (*MECHANISMS.values(), TWO_COLUMN_EPIDEMIC)]
    if model is not None and _model_file.is_file(model):
        own = _model_file.load(model).field
        fields.append(own if callable(own) else own.field)
    try:
        with jax.enable_x64(True):  # in which they were fitted
            return load(file, functions=fields)
    except ModelFileError as error:
        raise UserError(str(error)) from None
