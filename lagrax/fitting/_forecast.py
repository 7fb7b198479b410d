"""Further into the future, by what a fit has left in its folder."""

from pathlib import Path
from typing import Any

from .._choices import UserError
from ..runner import figures
from ..runner._folder import read_json, write_text
from ..series import Forecast
from . import _figures, _folder, _model_file
from ._run import forecast_csv
from ._words import METHODS


def write(folder: Path, horizon: int, method: str | None, to: Path | None) -> tuple[Path, Path]:
    """Writes quantiles as CSV and a figure, and returns their files."""
    found = read_json(folder / _folder.FIT)
    request = _folder.request_of(folder)
    forecasters = _load(folder, request.model)
    method = method or found["chosen"]
    if method not in forecasters:
        raise UserError(
            f"{folder} has no forecast by {method}, expected one of {', '.join(forecasters)}: choose one of those"
        )
    forecast: Forecast = forecasters[method](horizon)
    _, selection = request.load()
    to = to or folder / f"forecast-{horizon}.csv"
    write_text(to, forecast_csv(forecast, found["data"]["columns"], selection.calendar))
    view = _figures.View(selection.names, selection.unit, selection.calendar)
    _, start, end = selection.groups[-1]
    drawn = _figures.draw_forecast(view, selection.t[start:end], selection.y[start:end], forecast, {})
    figures.save(drawn, to.parent, to.stem, f"Forecast of {horizon} samples by {METHODS[method]}.")
    return to, to.with_suffix(".png")


def _load(folder: Path, model: str | None) -> dict[str, Any]:
    from .. import ModelFileError, load

    file = folder / _folder.FORECASTERS
    if not file.exists():
        raise UserError(
            f"{folder} holds no {file.name}: the model could not be saved; run the fit again with another --horizon"
        )
    functions = [_model_file.load(model).field] if _model_file.is_file(model) and model is not None else []
    try:
        return load(file, functions=functions)
    except ModelFileError as error:
        raise UserError(str(error)) from None
