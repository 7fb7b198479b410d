"""What is asked of `lagrax fit`: the data, and how to fit them. As JSON it is a run's configuration."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._choices import UserError
from ..tables import Choice, Selection, Table, read, select


@dataclasses.dataclass(frozen=True)
class Request:
    """Settings are those of [`lagrax.fit_series`][]; None leaves one to it. Columns and rows: see `lagrax.tables.Choice`."""

    data: str
    choice: Choice = dataclasses.field(default_factory=Choice)
    decimal: str | None = None
    missing: str | None = None
    model: str | None = None
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    delays: int | str | None = None
    delay_bounds: tuple[float, float] | None = None
    transform: str | None = None
    season: int | None = None
    horizon: int | None = None
    holdout: float | None = None
    seeds: int | None = None
    minutes: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments of `fit_series` that were given, without the model and its parameters."""
        names = ("delays", "delay_bounds", "transform", "season", "horizon", "holdout", "seeds", "minutes")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def title(self) -> str:
        """Such as: count in flies.csv, set=4."""
        columns = ", ".join(self.choice.value) or "the series"
        return ", ".join([f"{columns} in {Path(self.data).name}", *self.choice.where])

    def load(self) -> tuple[Table, Selection]:
        table = read(Path(self.data), self.decimal, self.missing)
        return table, select(table, self.choice)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "data": str(Path(self.data).absolute()), "model": _placed(self.model)}


def from_json(saved: Mapping[str, Any], file: Path) -> Request:
    try:
        names = {field.name for field in dataclasses.fields(Request)}
        given = {name: value for name, value in saved.items() if name in names}
        columns: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.pop("choice").items()}
        bounds = given.pop("delay_bounds")
        return Request(**given, choice=Choice(**columns), delay_bounds=None if bounds is None else tuple(bounds))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(
            f"{file} is not what this version of lagrax writes ({error!r}): start anew without --resume"
        ) from None


def check_same(saved: Request, given: Request) -> None:
    """Raises if an option contradicts the run that is to be resumed; what was left out does not."""
    blank = Request("")
    for field in dataclasses.fields(Request):
        old, new, default = (getattr(request, field.name) for request in (saved, given, blank))
        if field.name == "data":
            new = str(Path(new).absolute()) if new else ""
        if field.name == "model":
            old, new = _placed(old), _placed(new)
        if field.name == "choice":
            clashes = [
                (part.name, getattr(old, part.name), getattr(new, part.name))
                for part in dataclasses.fields(Choice)
                if getattr(new, part.name) not in (getattr(default, part.name), getattr(old, part.name))
            ]
        else:
            clashes = [] if new in (default, old) else [(field.name, old, new)]
        for name, was, now in clashes:
            raise UserError(
                f"the fit to be resumed has {name.replace('_', '-')} = {_said(was)}, not {_said(now)}: leave it out, "
                "or start anew without --resume"
            )


def _placed(model: str | None) -> str | None:
    """A model in a file, with the whole path: a run is read again from other folders."""
    return str(Path(model).absolute()) if model is not None and ".py" in model else model


def _said(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def checksum(value: Any) -> str:
    """SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
