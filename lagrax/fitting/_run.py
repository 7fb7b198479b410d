"""A fit from the table to the report, in a folder of its own; further forecasts by one that is finished."""

import csv
import dataclasses
import io
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._choices import UserError
from ..runner import figures
from ..runner._execute import surroundings
from ..runner._folder import CONFIG, REPORT, read_json, write_json, write_text
from ..series import Forecast, SeriesFit
from ..series._assemble import continued
from ..series._stages import FILE as STAGES
from ..tables import Calendar, Selection, Table
from . import _figures, _folder, _model_file, _page
from ._progress import Progress, reporting, waiting_for
from ._request import Request, check_same, checksum
from ._words import METHODS


@dataclasses.dataclass
class Run:
    """A fit that is under way in `folder`: what was asked for, the data, and the keyword arguments of `fit_series`.

    `known`: what there is of it so far, if it is not finished.
    """

    folder: Path
    request: Request
    table: Table
    selection: Selection
    arguments: dict[str, Any]
    known: SeriesFit | None = None
    began: float = dataclasses.field(default_factory=time.monotonic)


def prepare(request: Request, out: Path | None, command: str) -> Run:
    """A new run; nothing is written before the table and the model are understood."""
    table, selection = request.load()
    arguments = _arguments(request, selection)
    data = {"file_checksum": table.checksum, "model_checksum": _model_file.checksum(request.model)}
    folder = _folder.new(out, {"request": request.to_json(), "data": data, "command": command, **surroundings()})
    return Run(folder, request, table, selection, arguments)


def reopen(folder: Path, given: Request) -> Run:
    """What was interrupted in `folder`, with the settings found there and the same data."""
    request = _folder.request_of(folder)
    check_same(request, given)
    table, selection = load_same(folder, request, "start anew without --resume")
    return Run(folder, request, table, selection, _arguments(request, selection))


def load_same(folder: Path, request: Request, remedy: str) -> tuple[Table, Selection]:
    """The data of a fit that was begun in `folder`; raises, with what to do, if they or the user's model have changed."""
    table, selection = request.load()
    seen = read_json(folder / CONFIG)["data"]
    own = (request.model, seen.get("model_checksum"), _model_file.checksum(request.model))
    for file, before, now in ((table.path, seen["file_checksum"], table.checksum), own):
        if before != now:
            raise UserError(f"{file} has changed since the fit in {folder} was started: {remedy}")
    return table, selection


def complete(run: Run, shown: bool = True) -> SeriesFit:
    """Fits and reports."""
    with _folder.working_in(run.folder), reporting(run.folder / _folder.LOG, shown) as progress:
        try:
            for note in run.selection.notes:
                progress.note(note)
            fit = waiting_for(lambda: _fit(run, progress))
            run.known = None
            progress("report", None)
            _write(run, fit)
        except Exception as error:
            progress.note(f"failed: {error}" if isinstance(error, UserError) else traceback.format_exc())
            raise
    (run.folder / STAGES).unlink(missing_ok=True)
    return fit


def leave(run: Run) -> str:
    """Reports what there is of a fit that is interrupted, and returns a sentence about it."""
    if run.known is None:
        return "what was done is kept"
    fit, run.known = _labelled(run.known, run.selection), None
    _write(run, fit)
    with open(run.folder / _folder.LOG, "a", encoding="utf-8") as log:
        print(f"interrupted; missing: {', '.join(fit.missing)}", file=log)
    return f"what there is so far is in {run.folder / REPORT}"


def _fit(run: Run, progress: Progress) -> SeriesFit:
    from ..series import fit_series

    progress("starting", None)
    selection = run.selection
    parts = [slice(start, end) for _, start, end in selection.groups]
    split = lambda values: values if run.request.choice.group is None else [values[part] for part in parts]
    inputs = None if selection.inputs is None else split(selection.inputs)
    named: dict[str, Any] = {"inputs": inputs, "names": selection.names, "progress": progress}
    named |= {"folder": run.folder, "partial": lambda known: setattr(run, "known", known)}
    try:
        fit = fit_series(split(selection.t), split(selection.y), **named, **run.arguments)
    except ValueError as error:
        raise UserError(_model_file.explained(error, run.request.model)) from error
    return _labelled(fit, selection)


def _labelled(fit: SeriesFit, selection: Selection) -> SeriesFit:
    """With what only the table knows: the unit of time, the names of inputs and groups, also where a note has one."""
    labels = [label for label, _, _ in selection.groups]
    groups = tuple((label, start, end) for label, (_, start, end) in zip(labels, fit.samples.groups, strict=True))
    samples = dataclasses.replace(fit.samples, unit=selection.unit, input_names=selection.input_names, groups=groups)
    notes = tuple(note.replace(continued(fit.samples), continued(samples)) for note in fit.notes)
    return dataclasses.replace(fit, samples=samples, notes=notes)


def _arguments(request: Request, selection: Selection) -> dict[str, Any]:
    """The model, the starts of its parameters and the settings; runs a file of the user's, and tries the field in it."""
    settings, params = dict(request.settings), dict(request.params)
    if request.model is None or not _model_file.is_file(request.model):
        return {"model": request.model, "params": params or None, **settings}
    found = _model_file.load(request.model)
    if found.delays is not None:
        settings.setdefault("delays", found.delays)
    count = settings["delays"] if isinstance(settings.get("delays"), int) else 1
    shape = (len(selection.names), count, len(selection.input_names))
    if callable(found.field):
        params = _model_file.check(request.model, found.field, {**found.params, **params}, shape)
    return {"model": found.field, "params": params or None, **settings}


def _write(run: Run, fit: SeriesFit) -> None:
    """Everything that a fit leaves behind; fit.json, which says whether it is finished, last."""
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
    found |= {"lagrax": saved["versions"].get("lagrax"), "seconds": round(time.monotonic() - run.began, 1)}
    write_text(folder / _folder.FORECAST, forecast_csv(fit.forecast, fit.samples.names, calendar))
    files = [_folder.FIT, _folder.FORECAST, *([] if fit.missing else _folder.save_models(folder, fit)), _folder.LOG]
    drawn = _figures.draw(fit, folder, calendar)
    config = {"command": saved["command"], **found["settings"], "seconds": found["seconds"]}
    config |= {key: saved[key] for key in ("started", "machine", "versions")}
    write_text(folder / REPORT, _page.page(fit, run.request.title, drawn, folder, files, config))
    write_json(folder / _folder.FIT, found)


def forecast_further(folder: Path, horizon: int, method: str | None, to: Path | None) -> tuple[str, Path, Path]:
    """Writes quantiles as CSV and a figure, by what a fit has left. Returns who forecasts, in words, and both files."""
    found = read_json(folder / _folder.FIT)
    if not _folder.is_finished(folder):
        raise UserError(f"the fit in {folder} is not finished: go on with it first, by lagrax fit --resume {folder}")
    request = _folder.request_of(folder)
    _, selection = load_same(folder, request, "fit it again, or bring the old file back")
    forecasters = _folder.load_forecasters(folder, request.model)
    method = method or found["chosen"]
    if method not in forecasters:
        raise UserError(
            f"{folder} has no forecast by {method}, expected one of {', '.join(forecasters)}: choose one of those"
        )
    forecast: Forecast = forecasters[method](horizon)
    to = to or folder / f"forecast-{horizon}.csv"
    write_text(to, forecast_csv(forecast, found["data"]["columns"], selection.calendar))
    view = _figures.View(selection.names, selection.unit, selection.calendar)
    _, start, end = selection.groups[-1]
    drawn = _figures.draw_forecast(view, selection.t[start:end], selection.y[start:end], forecast, {})
    figures.save(drawn, to.parent, to.stem, f"Forecast of {horizon} samples by {METHODS[method]}.")
    return METHODS[method], to, to.with_suffix(".png")


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
