"""Times of rows as numbers that increase: from a column of numbers or dates, from several columns, or from nothing."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from .._choices import UserError
from ._dates import Calendar, DateError, calendar, dates, looks_like_date
from ._numbers import looks_numeric
from ._table import Choice, Table

_UNITS = ("years", "months", "weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
_PARTS = ("year", "month", "day", "hour", "minute", "second")


def time_positions(table: Table, choice: Choice) -> list[int]:
    """Of the column of times; of several, as in `year,month`, if no column has that name."""
    if choice.time is None:
        return []
    words = choice.time.split(",")
    if len(words) > 1 and choice.time not in table.names:
        return [table.position(word.strip(), "--time") for word in words]
    return [table.position(choice.time, "--time")]


def unit_of(table: Table, times: list[int]) -> str:
    """The first unit that the name of a column of numbers has: days for `day`, `time (days)`, `day_of_year`; "" if none."""
    words = re.findall("[a-z]+", table.names[times[0]].lower()) if times else []
    return next((unit for word in words for unit in _UNITS if word in (unit, unit[:-1])), "")


def times(
    table: Table, positions: list[int], choice: Choice, groups: Sequence[tuple[str, int, int]]
) -> tuple[np.ndarray, Calendar | None, list[str]]:
    """Times as numbers (n,), the calendar of dates, and how the dates were understood."""
    clock = ""
    if not positions:
        each = [choice.step * np.arange(end - start, dtype=float) for _, start, end in groups]
        return np.concatenate(each), None, []
    if len(positions) == 1 and choice.date_format is None and table.is_numeric(positions[0]):
        t = table.numbers(positions[0])
        compact = _compact_dates(table, positions[0], t)
        if compact is None:
            return _without_gaps(table, t, positions[0]), None, []
        found = compact
    elif len(positions) == 1:
        found, clock = _dates_of(table, positions[0], choice.date_format)
    else:
        found = _from_parts(table, positions)
    chosen = calendar(found[groups[0][1] : groups[0][2]])
    chosen = dataclasses.replace(chosen, origin=found.min())
    first, last = _date(found.min()), _date(found.max())
    note = f"Dates run from {first} to {last}; times are {chosen.unit} since {first}{clock and '; '}{clock}."
    return chosen.numbers(found), chosen, [note]


def _date(moment: np.datetime64) -> str:
    return str(moment.astype("datetime64[D]"))


def _dates_of(table: Table, position: int, given: str | None) -> tuple[np.ndarray, str]:
    empty = [row for row, text in enumerate(table.columns[position]) if not text]
    if empty:
        raise _timeless(table, empty[0], position)
    first = table.columns[position][0]
    if given is None and looks_numeric(first) and not looks_like_date(first):
        table.numbers(position)  # which says what is no number
    return table.dates(position, given)


def _without_gaps(table: Table, t: np.ndarray, position: int) -> np.ndarray:
    if np.isnan(t).any():
        raise _timeless(table, int(np.argmax(np.isnan(t))), position)
    return t


def _timeless(table: Table, row: int, position: int) -> UserError:
    return UserError(f"{table.place(row)} has no {table.names[position]}: a sample needs a time, complete or remove it")


def _compact_dates(table: Table, position: int, t: np.ndarray) -> np.ndarray | None:
    """Dates such as 19991231 or 199912, if every number of the column is one and they span more than a month or a year."""
    fields = table.columns[position]
    width = {len(field) for field in fields}
    if width not in ({8}, {6}) or not all(field.isdecimal() for field in fields):
        return None
    year, rest = np.divmod(t.astype(int), 10_000 if width == {8} else 100)
    month, day = (rest // 100, rest % 100) if width == {8} else (rest, np.ones_like(rest))
    possible = (year >= 1600) & (year < 2200) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    spans = len(set(year * 12 + month if width == {8} else year)) > 1
    if not possible.all() or not spans:
        return None
    try:
        return dates([f"{y}-{m}-{d}" for y, m, d in zip(year, month, day, strict=True)], None)
    except DateError:
        return None


def _from_parts(table: Table, positions: list[int]) -> np.ndarray:
    """Dates from columns of years, months, … in this order."""
    if len(positions) > len(_PARTS):
        raise UserError(f"--time names {len(positions)} columns, expected at most {', '.join(_PARTS)}")
    parts = [_without_gaps(table, table.numbers(position), position) for position in positions]
    for part, position in zip(parts, positions, strict=True):
        if np.any(part != np.round(part)):
            row = int(np.argmax(part != np.round(part)))
            raise UserError(f"{table.place(row, position)}: {part[row]:g}, expected a whole number, as a part of a date is")
    whole = [part.astype(int) for part in parts]
    whole += [np.full_like(whole[0], 1 if i < 3 else 0) for i in range(len(whole), len(_PARTS))]
    texts = ["{}-{}-{} {}:{:02d}:{:02d}".format(*row) for row in zip(*whole, strict=True)]
    try:
        return dates([f"{text.split('-')[0].zfill(4)}-{text.split('-', 1)[1]}" for text in texts], None)
    except DateError as error:
        names = ", ".join(table.names[position] for position in positions)
        raise UserError(
            f"{table.place(error.row or 0)}: {names} are no date ({error}), expected year, month, day in this order"
        ) from None


def check_increasing(
    table: Table, t: np.ndarray, groups: Sequence[tuple[str, int, int]], positions: list[int], choice: Choice
) -> None:
    for _, start, end in groups:
        wrong = np.flatnonzero(np.diff(t[start:end]) <= 0)
        if wrong.size == 0:
            continue
        row = start + int(wrong[0]) + 1
        name = " ".join(table.names[i] for i in positions)
        show = lambda i: " ".join(table.columns[position][i] for position in positions)
        now, before = show(row), show(row - 1)
        what = f"is {now} again" if t[row] == t[row - 1] else f"is {now} after {before}"
        raise UserError(
            f"{table.place(row)}: {name} {what} ({table.line} {table.lines[row - 1]}), expected times that increase: "
            f"{_advice(table, positions, choice)}"
        )


def _advice(table: Table, positions: list[int], choice: Choice) -> str:
    """A column that tells several series apart, if there is one."""
    taken = {*positions, *(table.position(name, "--value") for name in choice.value)}
    parts = [name for part in _PARTS for name in table.names if name.lower() == part]
    if len(parts) > len(positions) and parts[0].lower() == "year":
        return f"are dates in several columns? --time {','.join(parts)}"
    for position in range(len(table.names)):
        different = list(dict.fromkeys(table.columns[position]))
        if position not in taken and 1 < len(different) <= max(2, len(table.lines) // 5) and choice.group is None:
            name = table.names[position]
            return f"does the file hold several series? --where {name}={different[0]} takes one, --group {name} all of them"
    return "sort the rows by time, and keep one for each"
