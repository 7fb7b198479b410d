"""Further into the future, by what a fit has left in its folder."""

from pathlib import Path

from .._choices import UserError
from ..runner import figures
from ..runner._folder import read_json, write_text
from ..series import Forecast
from . import _figures, _folder
from ._archive import load_forecasters
from ._run import forecast_csv, load_same
from ._words import METHODS


def write(folder: Path, horizon: int, method: str | None, to: Path | None) -> tuple[str, Path, Path]:
    """Writes quantiles as CSV and a figure. Returns whose forecast it is, in words, and the two files."""
    found = read_json(folder / _folder.FIT)
    if not _folder.is_finished(folder):
        raise UserError(f"the fit in {folder} is not finished: go on with it first, by lagrax fit --resume {folder}")
    request = _folder.request_of(folder)
    _, selection = load_same(folder, request, "fit it again, or bring the old file back")
    forecasters = load_forecasters(folder, request.model)
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
