"""What a fit leaves for programs: the trained model, and what forecasts any horizon, as files of `lagrax.save`."""

from pathlib import Path
from typing import Any

import jax

from .._choices import UserError
from ..series import MECHANISMS, TWO_COLUMN_EPIDEMIC, SeriesFit
from . import _folder, _model_file


def save_models(folder: Path, fit: SeriesFit) -> list[str]:
    """Writes what can be written, and returns the names of the files."""
    from .. import save

    saved = []
    for name, value in ((_folder.MODEL, fit.model), (_folder.FORECASTERS, fit.forecasters)):
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

    file = folder / _folder.FORECASTERS
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
