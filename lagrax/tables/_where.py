"""Rows by condition (`set=4`, `day<100`) and by group."""

import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._choices import UserError
from ._dates import DateError, dates
from ._numbers import NotANumber, numbers
from ._table import Table

_COMPARISONS = {
    "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"(.+?)(!=|<=|>=|=|<|>)(.*)", re.DOTALL)


def split(text: str) -> tuple[str, str, str]:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UserError(f"--where {text!r}, expected a comparison such as set=4, set!=4 or 'day<100'")
    return found[1].strip(), found[2], found[3].strip()


def rows_where(table: Table, text: str) -> np.ndarray:
    """The rows for which a comparison holds: of numbers if both sides are, of dates if both are, else of text."""
    name, sign, value = split(text)
    position = table.position(name, "--where")
    fields = table.columns[position]
    compare = _COMPARISONS[sign]
    left, right = _comparable(table, position, value)
    if left is None:
        if sign not in ("=", "!="):
            raise UserError(f"--where {text!r} compares sizes, but {name} holds text such as {fields[0]!r}: use = or !=")
        left, right = np.array(fields, object), value
    chosen = np.flatnonzero(compare(left, right))
    if chosen.size == 0:
        raise UserError(f"--where {text!r} leaves no rows: {name} is {_some(fields)}")
    return chosen


def _comparable(table: Table, position: int, value: str) -> tuple[np.ndarray | None, Any]:
    fields = table.columns[position]
    try:
        return numbers(fields, table.mark), numbers([value], ".")[0]
    except NotANumber:
        pass
    try:
        return dates(fields, None), dates([value], None)[0]
    except DateError:
        return None, None


def _some(fields: Sequence[str]) -> str:
    different = list(dict.fromkeys(fields))
    if len(different) > 8:
        return f"one of {len(different)} values, such as {', '.join(different[:4])}"
    return f"{', '.join(different[:-1])} or {different[-1]}" if len(different) > 1 else f"{different[0]!r} in every row"


def grouped(table: Table, group: str | None) -> tuple[np.ndarray, tuple[tuple[str, int, int], ...]]:
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
