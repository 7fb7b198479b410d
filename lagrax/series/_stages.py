"""The stages of a fit: each is told of, done once, and kept, so that a fit that was stopped goes on where it was."""

import hashlib
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import __version__
from ..saving._persist import ModelFileError, load, save

FILE = "stages.lagrax"

Tell = Callable[[str, float | None, str], None]


class Stages:
    """What a fit has done, as plain arrays in dicts and lists, by stage; with `folder`, in a file there too.

    `made_of` is what the fit was asked for: stages of another fit are not taken for its own. `tell` hears of each stage as
    it begins, `report` of what is known after it.
    """

    def __init__(self, folder: str | os.PathLike | None, made_of: str, tell: Tell, report: Callable[[dict[str, Any]], None]):
        self._file = None if folder is None else Path(folder) / FILE
        self._made_of, self.tell, self.report = made_of, tell, report
        self._kept: dict[str, Any] = {} if self._file is None else _read(self._file, made_of)

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """What `compute` returns, from now or from before the interruption."""
        if name not in self._kept:
            self.keep(name, compute())
        return self._kept[name]

    def kept(self, name: str) -> Any:
        return self._kept.get(name)

    def keep(self, name: str, value: Any) -> None:
        """Also for a stage that is under way, which keeps how far it is under a name of its own."""
        self._kept[name] = value
        if self._file is not None:
            save(self._file, {"made of": self._made_of, "stages": self._kept})


def _read(file: Path, made_of: str) -> dict[str, Any]:
    if not file.parent.is_dir():
        raise ValueError(f"folder = '{file.parent}', which is no folder, expected one to keep stages in: make it first")
    if not file.exists():
        return {}
    try:
        found = load(file)
    except ModelFileError as error:
        raise ValueError(f"{file} cannot be read ({error}), expected the stages of this fit: remove it") from None
    if found["made of"] != made_of:
        raise ValueError(
            f"{file} holds the stages of another fit, expected one of the same data, model and settings: choose another "
            "folder, or remove it"
        )
    return found["stages"]


def asked(samples_checksum: str, model: Any, settings: dict[str, Any]) -> str:
    """A checksum of the data, the model (of a function its text, where there is one) and the settings."""
    field = getattr(model, "field", model)
    try:
        text = inspect.getsource(field) if callable(field) else str(field)
    except (OSError, TypeError):  # typed into an interpreter, or not written in Python
        text = getattr(field, "__qualname__", type(field).__name__)
    whole = [__version__, samples_checksum, text, settings]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()


def unfinished(kind: str, first: int, missing: tuple[str, ...], **known: Any) -> dict[str, Any]:
    """What is known of a model before its fit has ended, as `assembled` takes it: no forecasts, perhaps estimates."""
    nothing = {"delays": (), "parameters": (), "profiles": (), "notes": ()}
    more = {"trained": None, "model": None, "widen": 1.0, "validated": None}
    return {"kind": kind, "first": first, "missing": missing, **nothing, **more, **known}
