"""A table read from a file, of text or Parquet: named columns of text, and where each row stands; what a user says of it."""

import dataclasses
import difflib
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .._choices import UserError
from ._dates import DateError, by_one_clock, local_dates
from ._numbers import Marks, NotANumber, common_mark, looks_numeric, marks, numbers
from ._text import rows_of

_SAMPLE = 20_000  # rows that decimal marks are read off


@dataclasses.dataclass(frozen=True)
class Table:
    """`columns`: their fields, all as text, by position as `names`. `lines`: of the file, of each row; `notes`: sentences.

    `marks`: what each column says of the mark of decimals; `decimal`: what the user says; `asked`: where the columns
    of numbers are that the user asks for, which decide for each other. `missing`: one more word for a value that is not
    there. `checksum`: SHA-256 of the file. `line`: what a row's place is called, "line" of text or "row" of Parquet.
    """

    path: Path
    names: list[str]
    columns: list[list[str]]
    lines: list[int]
    notes: list[str]
    marks: list[Marks]
    decimal: str | None
    missing: str | None
    checksum: str
    line: str = "line"
    asked: tuple[int, ...] = ()

    def position(self, name: str, option: str) -> int:
        """Of a column by its name, whatever its letters' case, or by its number from 1."""
        for key in (lambda text: text, str.casefold):
            found = [i for i, own in enumerate(self.names) if key(own) == key(name)]
            if len(found) > 1:
                raise UserError(
                    f"{self.path} has {len(found)} columns called {name}: give {option} its number, from 1, instead"
                )
            if found:
                return found[0]
        if name.isdecimal() and 1 <= int(name) <= len(self.names):
            return int(name) - 1
        near = difflib.get_close_matches(name, self.names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{self.path} has no column {name} ({option}): {hint}{self.list_columns()}")

    def list_columns(self) -> str:
        if len(self.names) == 1:
            return f"its only column is {self.names[0]}"
        most = 12
        more = f", … ({len(self.names)} in all)" if len(self.names) > most else ""
        return f"its columns are {', '.join(self.names[:most])}{more}"

    def mark(self, position: int) -> str | None:
        """Of the decimals of a column, "." or ","; None if that cannot be told, and numbers may be others.

        Columns that are not asked for do not decide, for what looks like a number there may be a clock (08.15) or a version;
        but they can raise a doubt.
        """
        own = self.marks[position]
        found = self.decimal or own.mark or common_mark(self.marks[i] for i in self.asked)
        if found is not None:
            return found
        doubtful = own.open or (own.grouped and any(other.mark == "," for other in self.marks))
        return None if doubtful else "."

    def numbers(self, position: int) -> np.ndarray:
        """A column as numbers (n,), NaN for missing ones; a sentence for what is neither."""
        try:
            found = numbers(self.columns[position], self.mark(position))
            if self.missing is not None and looks_numeric(self.missing):
                found[found == numbers([self.missing], self.mark(position) or ".")[0]] = np.nan
            return found
        except NotANumber as error:
            others = self._count_others(position, error) if "--decimal" not in error.why else ""
            hint = "" if "--decimal" in error.why else f"{others}: correct the file, or leave such rows out with --where"
            raise UserError(f"{self.place(error.row, position)}: {error.text!r} {error.why}{hint}") from None

    def dates(self, position: int, given: str | None) -> tuple[np.ndarray, str]:
        """A column as dates (n,), datetime64, and in words whose clock they are by, if their offset from UTC is known."""
        try:
            return by_one_clock(*local_dates(self.columns[position], given))
        except DateError as error:
            place = f"{self.path}, column {self.names[position]}" if error.row is None else self.place(error.row, position)
            raise UserError(f"{place}: {error}") from None

    def rows(self, chosen: np.ndarray) -> "Table":
        """The rows at these positions."""
        picked = [[column[i] for i in chosen] for column in self.columns]
        return dataclasses.replace(self, columns=picked, lines=[self.lines[i] for i in chosen])

    def is_numeric(self, position: int) -> bool:
        """Whether a column holds numbers and missing values, and at least one number."""
        try:
            return bool(np.isfinite(numbers(self.columns[position], self.mark(position) or ".")).any())
        except NotANumber:
            return False

    def place(self, row: int, position: int | None = None) -> str:
        """Where a row stands, for the start of a sentence about it."""
        column = "" if position is None else f", column {self.names[position]}"
        return f"{self.path}, {self.line} {self.lines[row]}{column}"

    def _count_others(self, position: int, error: NotANumber) -> str:
        wrong = 0
        for text in self.columns[position][error.row + 1 :]:
            try:
                numbers([text], self.mark(position))
            except NotANumber:
                wrong += 1
        return f" (nor are {wrong} others)" if wrong else ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the user says of a table: columns by name, rows by condition; see `lagrax fit --help`."""

    value: Sequence[str] = ()
    time: str | None = None
    inputs: Sequence[str] = ()
    where: Sequence[str] = ()
    group: str | None = None
    step: float = 1.0
    unit: str | None = None
    date_format: str | None = None


def read(path: Path, decimal: str | None = None, missing: str | None = None) -> Table:
    """The table in a file: text with any usual separator and encoding, or Parquet.

    `decimal`: the mark of decimals, where it cannot be told. `missing`: one more word, or number, for a missing value.
    """
    content = path.read_bytes()
    if content.startswith(b"PAR1"):
        (names, columns), notes, line = _parquet(path), [], "row"
        lines = list(range(1, len(columns[0]) + 1))
    else:
        rows = rows_of(path, content)
        names, lines, notes, line = rows.names, rows.lines, rows.notes, "line"
        columns = [list(column) for column in zip(*rows.fields, strict=True)]
    if missing is not None:
        columns = [["" if field == missing else field for field in column] for column in columns]
    said = [marks(column[:_SAMPLE]) for column in columns]
    return Table(path, names, columns, lines, notes, said, decimal, missing, hashlib.sha256(content).hexdigest(), line)


def _parquet(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names and the fields of all columns, as the text that a CSV file would have: they are read in the same way.

    By pyarrow, an extra.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{path} is a Parquet file, which needs pyarrow: pip install 'lagrax[parquet]'") from None
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is a Parquet file that cannot be read ({str(error).splitlines()[0]})") from None
    if not table.num_rows:
        raise UserError(f"{path} is empty: expected a table with a row for each sample")
    return table.column_names, [["" if v is None else str(v) for v in column.to_pylist()] for column in table.columns]
