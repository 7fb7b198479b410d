"""From a table to the series in it: which rows, which columns, times as increasing numbers."""

import dataclasses
import re

import numpy as np

from .._choices import UserError
from ._choice import Choice
from ._dates import Calendar
from ._table import Table
from ._times import check_increasing, time_positions, times, unit_of
from ._where import grouped, rows_where, split

_PLACEHOLDER = re.compile(r"-?9{2,}(\.9*|\.0*)?")


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
    for condition in choice.where:
        table = table.rows(rows_where(table, condition))
    rows, groups = grouped(table, choice.group)
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
    taken |= {table.position(split(text)[0], "--where") for text in choice.where}
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
