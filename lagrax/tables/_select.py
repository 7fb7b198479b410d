"""From a table to the series in it: which rows (`set=4`, `day<100`, groups), which columns, times as increasing numbers."""

import dataclasses
import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._choices import UserError
from ._dates import Calendar, DateError, by_one_clock, local_dates
from ._numbers import NotANumber, numbers
from ._table import Choice, Table
from ._times import check_increasing, time_positions, times, unit_of

_PLACEHOLDER = re.compile(r"-?9{2,}(\.9*|\.0*)?")
_COMPARISONS = {
    "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"(.+?)(!=|<=|>=|=|<|>)(.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Selection:
    """The series found in a table, one after the other: `t` (n,), `y` (n, d), `inputs` (n, m) or None, NaN where missing.

    `groups`: (label, first row, row after the last). `unit`: of time, "" if the file does not say; `calendar`: if times are
    dates. `notes`: sentences on what was understood.
    """

    t: np.ndarray
    y: np.ndarray
    inputs: np.ndarray | None
    names: tuple[str, ...]
    input_names: tuple[str, ...]
    groups: tuple[tuple[str, int, int], ...]
    unit: str
    calendar: Calendar | None
    notes: tuple[str, ...]


def select(table: Table, choice: Choice) -> Selection:
    clock = time_positions(table, choice)
    values = _value_positions(table, choice, clock)
    inputs = [table.position(name, "--input") for name in choice.inputs]
    _check_distinct(table, [*values, *inputs])
    numeric = clock if choice.date_format is None else []
    table = dataclasses.replace(table, asked=(*numeric, *values, *inputs))
    for condition in choice.where:
        table = table.rows(_rows_where(table, condition))
    rows, groups = _grouped(table, choice.group)
    table = table.rows(rows) if choice.group is not None else table
    t, found, notes = times(table, clock, choice, groups)
    check_increasing(table, t, groups, clock, choice)
    y = np.stack([_column(table, position) for position in values], axis=1)
    exogenous = np.stack([table.numbers(position) for position in inputs], axis=1) if inputs else None
    unit = choice.unit or (found.unit if found is not None else unit_of(table, clock))
    own = tuple(table.names[i] for i in values), tuple(table.names[i] for i in inputs)
    return Selection(t, y, exogenous, *own, groups, unit, found, (*table.notes, *notes))


def _value_positions(table: Table, choice: Choice, clock: list[int]) -> list[int]:
    if choice.value:
        found = [table.position(name, "--value") for name in choice.value]
        for position in found:
            if position in clock:
                raise UserError(f"column {table.names[position]} is both --time and --value: name another one")
        return found
    taken = {*clock, *(table.position(name, "--input") for name in choice.inputs)}
    taken |= {table.position(_condition(text)[0], "--where") for text in choice.where}
    taken |= {table.position(choice.group, "--group")} if choice.group is not None else set()
    free = [i for i in range(len(table.names)) if i not in taken and table.is_numeric(i)]
    if len(free) == 1 and clock:
        return free
    if not any(table.is_numeric(i) for i in range(len(table.names))):
        sample = next((field for column in table.columns for field in column if field), "")
        raise UserError(f"{table.path} has no column of numbers (a field is {sample[:40]!r}): is it the right file?")
    if len(table.names) == 1:
        name = table.names[0]
        raise UserError(
            f"{table.path} has one column, {name}, and no times: --value {name} takes its rows as samples, "
            f"{choice.step:g} apart"
        )
    raise UserError(
        f"which column is to be fitted? Name it with --value, and that of the times with --time: {table.list_columns()}"
    )


def _check_distinct(table: Table, positions: list[int]) -> None:
    twice = [table.names[i] for i in positions if positions.count(i) > 1]
    if twice:
        raise UserError(f"column {twice[0]} is asked for twice: name it once, as --value or as --input")


def _column(table: Table, position: int) -> np.ndarray:
    found, name = table.numbers(position), table.names[position]
    known = found[np.isfinite(found)]
    if known.size == 0:
        raise UserError(f"{table.path}: column {name} has no numbers in the {len(found)} rows chosen: choose another one")
    if known.min() == known.max():
        raise UserError(
            f"{table.path}: column {name} is constant ({known[0]:g} in {len(known)} rows), so there is nothing to fit: "
            "choose another column or other rows"
        )
    _check_placeholders(table, position, known)
    return found


def _check_placeholders(table: Table, position: int, known: np.ndarray) -> None:
    """Refuses −9999 and its like among much smaller numbers: it is not a measurement, and would spoil any fit."""
    for value in (known.min(), known.max()):
        rest = known[known != value]
        far = np.abs(rest - value).min() > 3 * np.ptp(rest) and abs(value) > 3 * np.abs(rest).max()
        if far and _PLACEHOLDER.fullmatch(f"{value:.6g}") and (table.missing or "").lower() != "none":
            raise UserError(
                f"{table.path}: column {table.names[position]} has {value:g} among values from {rest.min():g} "
                f"to {rest.max():g}: say --missing {value:g} if it is a missing one, --missing none if it was measured"
            )


def _condition(text: str) -> tuple[str, str, str]:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UserError(f"--where {text!r}, expected a comparison such as set=4, set!=4 or 'day<100'")
    return found[1].strip(), found[2], found[3].strip()


def _rows_where(table: Table, text: str) -> np.ndarray:
    """The rows for which a comparison holds: of numbers if both sides are, of dates if both are, else of text."""
    name, sign, value = _condition(text)
    position = table.position(name, "--where")
    fields = table.columns[position]
    compare = _COMPARISONS[sign]
    left, right = _comparable(table, position, value)
    if left is None:
        if sign not in ("=", "!="):
            if table.is_numeric(position):
                table.numbers(position)  # which says why these are no certain numbers
            raise UserError(f"--where {text!r} compares sizes, but {name} holds text such as {fields[0]!r}: use = or !=")
        left, right = np.array(fields, object), value
    chosen = np.flatnonzero(compare(left, right))
    if chosen.size == 0:
        raise UserError(f"--where {text!r} leaves no rows: {name} is {_some(fields)}")
    return chosen


def _comparable(table: Table, position: int, value: str) -> tuple[np.ndarray | None, Any]:
    fields = table.columns[position]
    try:
        return numbers(fields, table.mark(position)), numbers([value], ".")[0]
    except NotANumber:
        pass
    try:
        (local, offsets), (limit, offset) = local_dates(fields, None), local_dates([value], None)
    except DateError:
        return None, None
    if offsets is not None and offset is not None:
        return local - offsets.astype("timedelta64[m]"), (limit - offset.astype("timedelta64[m]"))[0]
    return by_one_clock(local, offsets)[0], limit[0]


def _some(fields: Sequence[str]) -> str:
    different = list(dict.fromkeys(fields))
    if len(different) > 8:
        return f"one of {len(different)} values, such as {', '.join(different[:4])}"
    return f"{', '.join(different[:-1])} or {different[-1]}" if len(different) > 1 else f"{different[0]!r} in every row"


def _grouped(table: Table, group: str | None) -> tuple[np.ndarray, tuple[tuple[str, int, int], ...]]:
    """The rows, those of a group together, and where each group begins and ends."""
    count = len(table.lines)
    if group is None:
        return np.arange(count), (("", 0, count),)
    fields = table.columns[table.position(group, "--group")]
    members: dict[str, list[int]] = {}
    for row, label in enumerate(fields):
        members.setdefault(label, []).append(row)
    ends = np.cumsum([len(rows) for rows in members.values()])
    spans = tuple((label, int(end) - len(rows), int(end)) for (label, rows), end in zip(members.items(), ends, strict=True))
    return np.concatenate([np.array(rows) for rows in members.values()]), spans
