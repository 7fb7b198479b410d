"""A fit from the table to the report, in a folder of its own."""

import csv
import dataclasses
import io
import time
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from .._choices import UserError
from ..experiments._folder import CONFIG, REPORT, read_json, write_json, write_text
from ..experiments._run import _machine, _versions
from ..series import Forecast, SeriesFit
from ..tables import Calendar, Selection, Table
from . import _figures, _folder, _model_file, _page
from ._progress import Progress, reporting
from ._request import Request, check_same, checksum


@dataclasses.dataclass(frozen=True)
class Run:
    """A fit that is under way in `folder`: what was asked for, and the data."""

    folder: Path
    request: Request
    table: Table
    selection: Selection


def prepare(request: Request, out: Path | None, command: str) -> Run:
    """A new run; nothing is written before the table is understood."""
    table, selection = request.load()
    surroundings = {"started": datetime.now().isoformat(" ", "seconds"), "versions": _versions(), "machine": _machine()}
    data = {"file_checksum": table.checksum}
    folder = _folder.new(out, {"request": request.to_json(), "data": data, "command": command, **surroundings})
    return Run(folder, request, table, selection)


def reopen(folder: Path, given: Request) -> Run:
    """What was interrupted in `folder`, with the settings found there and the same data."""
    request = _folder.request_of(folder)
    check_same(request, given)
    table, selection = request.load()
    if read_json(folder / CONFIG)["data"]["file_checksum"] != table.checksum:
        raise UserError(f"{table.path} has changed since the fit in {folder} was started: start anew without --resume")
    return Run(folder, request, table, selection)


def complete(run: Run, shown: bool = True) -> SeriesFit:
    """Fits and reports."""
    with _folder.working_in(run.folder), reporting(run.folder / _folder.LOG, shown) as progress:
        try:
            for note in run.selection.notes:
                progress.note(note)
            begin = time.monotonic()
            fit = _fit(run.request, run.selection, progress)
            progress("report", None)
            _write(run, fit, time.monotonic() - begin)
        except Exception as error:
            progress.note(f"failed: {error}" if isinstance(error, UserError) else traceback.format_exc())
            raise
    return fit


def _fit(request: Request, selection: Selection, progress: Progress) -> SeriesFit:
    from ..series import fit_series

    progress("starting JAX", None)
    settings = dict(request.settings)
    model, params = _model(request, selection, settings)
    try:
        return fit_series(
            selection.t, selection.y, model=model, params=params, inputs=selection.inputs, names=selection.names,
            progress=progress, **settings,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(_model_file.explained(error, request.model)) from error
    except FloatingPointError as error:
        raise UserError(
            f"the fit ended in numbers that are not finite ({error}): try --transform log or other bounds"
        ) from error


def _model(request: Request, selection: Selection, settings: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    """The model and the starts of its parameters, as `fit_series` takes them."""
    params = dict(request.params)
    if not _model_file.is_file(request.model):
        return request.model, params or None
    assert request.model is not None
    found = _model_file.load(request.model)
    if found.delays is not None:
        settings.setdefault("delays", found.delays)
    count = settings.get("delays") if isinstance(settings.get("delays"), int) else 1
    shape = (len(selection.names), count, len(selection.input_names))
    if callable(found.field):
        params = _model_file.check(request.model, found.field, {**found.params, **params}, shape)
    return found.field, params or None


def _write(run: Run, fit: SeriesFit, seconds: float) -> None:
    """Everything that a fit leaves behind; the report, which says that it is finished, last."""
    folder, calendar = run.folder, run.selection.calendar
    saved = read_json(folder / CONFIG)
    found = fit.to_json()
    found["data"] |= {
        "file": str(run.table.path),
        "file_checksum": run.table.checksum,
        "where": list(run.request.choice.where),
    }
    found["settings"] = {**found["settings"], "checksum": checksum(found["settings"])}
    found["notes"] = [*run.selection.notes, *found["notes"]]
    found |= {"lagrax": saved["versions"].get("lagrax"), "seconds": round(seconds, 1)}
    write_text(folder / _folder.FORECAST, forecast_csv(fit.forecast, fit.samples.names, calendar))
    files = [_folder.FIT, _folder.FORECAST, *_save_models(folder, fit), _folder.LOG]
    figures = _figures.draw(fit, folder, calendar)
    write_json(folder / _folder.FIT, found)
    config = {"command": saved["command"], **found["settings"], "seconds": found["seconds"]}
    config |= {key: saved[key] for key in ("started", "machine", "versions")}
    write_text(folder / REPORT, _page.page(fit, run.request.title, figures, folder, files, config))


def _save_models(folder: Path, fit: SeriesFit) -> list[str]:
    """The trained model, and what `lagrax forecast` needs; each where a file can hold it."""
    from .. import save

    saved = []
    for name, value in ((_folder.MODEL, fit.model), (_folder.FORECASTERS, fit.forecasters)):
        if value is None:
            continue
        try:
            save(folder / name, value)
        except TypeError:  # a lambda, or another function without a name: the forecast has been written
            continue
        saved.append(name)
    return saved


def forecast_csv(forecast: Forecast, names: Sequence[str], calendar: Calendar | None) -> str:
    """A row for each time; a column for each quantile of each column, such as count_0.975."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    dates = [] if calendar is None else [calendar.dates(forecast.t)]
    levels = [f"{name}_{level:g}" for name in names for level in forecast.levels]
    writer.writerow(["time", *(["date"] if dates else []), *levels])
    values = np.moveaxis(forecast.quantiles, 0, -1).reshape(len(forecast.t), -1)  # (n, d · q)
    for row, (t, numbers) in enumerate(zip(forecast.t, values, strict=True)):
        writer.writerow([f"{t:.10g}", *(column[row] for column in dates), *(f"{number:.8g}" for number in numbers)])
    return text.getvalue()
