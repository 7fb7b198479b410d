"""A text file as rows of fields: its encoding, its separator, which lines are comments, titles and header.

What is no text is refused with its proper name.
"""

import codecs
import csv
import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .._choices import UserError
from ._dates import looks_like_date
from ._numbers import is_missing, looks_numeric

_FOREIGN = {
    b"PK\x03\x04": "an Excel workbook or a zip archive: save the sheet as CSV, or unpack it",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the sheet as CSV",
    b"\x1f\x8b": "compressed by gzip: unpack it",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it",
    b"%PDF": "a PDF: copy the table into a CSV file",
    b"\x89HDF": "an HDF5 file: write the columns to a CSV file",
}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

SEPARATORS = (",", ";", "\t", "|", " ")
"""A space stands for any run of spaces and tabs."""

_SAMPLE = 200  # lines that the layout is read off


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of fields below the header, each as long as `names`; `lines`: where they stand in the file, from 1."""

    names: list[str]
    fields: list[list[str]]
    lines: list[int]
    notes: list[str]


def rows_of(path: Path, content: bytes) -> Rows:
    text_lines = _lines_of(path, content)
    kept = [(number, line) for number, line in enumerate(text_lines, 1) if line.strip() and not _is_comment(line)]
    if not kept:
        raise UserError(f"{path} has only blank lines and comments: expected a table with a row for each sample")
    separator = _separator([line for _, line in kept[:_SAMPLE]])
    fields, lines = _split(path, kept, separator)
    skipped = _titles(fields)
    notes = [] if not skipped else [_skipped(lines[:skipped])]
    fields, lines = fields[skipped:], lines[skipped:]
    fields = _without_empty_ends(fields)
    commented = _commented_header(text_lines, lines[0], separator, len(fields[0]))
    if commented is None and _is_header(fields):
        header, fields, lines = fields[0], fields[1:], lines[1:]
    else:
        header = commented or []
    names = _names(header, Counter(map(len, fields)).most_common(1)[0][0] if fields else len(header), notes)
    _check_widths(path, names, fields, lines)
    if not fields:
        raise UserError(f"{path} has a header but no rows below it: expected a row for each sample")
    return Rows(names, fields, lines, notes)


def _lines_of(path: Path, content: bytes) -> list[str]:
    """The lines, without their ends."""
    if not content.strip():
        raise UserError(f"{path} is empty: expected a table with a row for each sample")
    for start, what in _FOREIGN.items():
        if content.startswith(start):
            raise UserError(f"{path} is {what}, then try again")
    text = _decode(path, content)
    if re.match(r"\s*(<!doctype|<html|<\?xml|\{|\[\s*[\[{])", text[:200], re.IGNORECASE):
        raise UserError(f"{path} is a web page, XML or JSON, expected a table of text: was the right file downloaded?")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _decode(path: Path, content: bytes) -> str:
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return _strictly(path, content[len(mark) :], encoding)
    if b"\0" in content[:4096]:  # UTF-16 without a mark has a zero in every other byte of plain text
        start = content[:4096]
        for encoding, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
            if zeros.count(0) > 0.9 * len(zeros):
                return _strictly(path, content, encoding)
        raise _binary(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # which every byte is a character of
    # Control characters other than tabs and ends of lines, more than the odd one: not text in any encoding.
    if sum(ord(letter) < 32 and letter not in "\t\n\r\f\v" for letter in text[:4096]) > 4:
        raise _binary(path)
    return text


def _strictly(path: Path, content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise _binary(path) from None


def _binary(path: Path) -> UserError:
    return UserError(f"{path} is not text, expected a CSV or a Parquet file: write the table as one of these")


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#") and not line.lstrip().upper().startswith(("#N/A", "#VALUE", "#DIV"))


def _separator(sample: list[str]) -> str:
    """The one that makes rows of the same length, of at least two fields, with most numbers, dates and missing values."""
    best, best_score = "\t", 0.0  # a tab, which is not there, leaves lines as they are
    for separator in SEPARATORS:
        rows = [_fields_of(line, separator) for line in sample]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        if width < 2:
            continue
        if separator == "," and _are_decimals(rows):
            continue
        data = [field for row in rows[1:] or rows if len(row) == width for field in row]
        plain = sum(is_missing(field) or looks_numeric(field) or looks_like_date(field) for field in data) / max(
            len(data), 1
        )
        score = count / len(rows) * (0.1 + plain)
        if score > best_score + 1e-9:
            best, best_score = separator, score
    return best


def _are_decimals(rows: list[list[str]]) -> bool:
    """Whether commas make "1,5" of one number below a header of one word, which is as wide as its rows."""
    digits = lambda row: all(field.lstrip("+-").isdigit() for field in row)
    return len(rows) > 1 and len(rows[0]) == 1 and all(len(row) == 2 and digits(row) for row in rows[1:])


def _fields_of(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    try:
        return [field.strip() for field in next(csv.reader([line], delimiter=separator, skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return [line]


def _split(path: Path, kept: list[tuple[int, str]], separator: str) -> tuple[list[list[str]], list[int]]:
    if separator == " ":
        quoted = any('"' in line for _, line in kept)
        rows = [_fields_of(" ".join(line.split()), " ") if not quoted else _quoted(line) for _, line in kept]
        return rows, [number for number, _ in kept]
    reader = csv.reader((f"{line}\n" for _, line in kept), delimiter=separator, skipinitialspace=True)
    rows, lines = [], []
    try:
        for row in reader:
            rows.append([field.strip() for field in row])
            lines.append(kept[reader.line_num - 1][0])
    except csv.Error as error:
        number = kept[min(reader.line_num, len(kept)) - 1][0]
        raise UserError(f"{path}, line {number} cannot be read ({error}): is a quotation mark missing?") from None
    return rows, lines


def _quoted(line: str) -> list[str]:
    return next(csv.reader([" ".join(line.split())], delimiter=" ", skipinitialspace=True))


def _titles(fields: list[list[str]]) -> int:
    """How many lines at the top are no part of the table: those shorter than all the rows below them."""
    width = Counter(len(row) for row in fields[:_SAMPLE]).most_common(1)[0][0]
    skipped = 0
    while (
        skipped < len(fields)
        and len([f for f in fields[skipped] if f]) == 1 < width
        and not looks_numeric(fields[skipped][0])
    ):
        skipped += 1
    return skipped if skipped < len(fields) else 0


def _skipped(lines: list[int]) -> str:
    where = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
    return f"{where[0].upper()}{where[1:]}, above the table, {'is' if len(lines) == 1 else 'are'} taken for a title."


def _without_empty_ends(fields: list[list[str]]) -> list[list[str]]:
    """Without the empty fields that separators at the start or the end of every line make."""
    width = max(map(len, fields))
    while width > 1 and all(len(row) < width or not row[width - 1] for row in fields):
        fields = [row[: width - 1] for row in fields]
        width -= 1
    if width > 1 and len(fields) > 1 and all(not row[0] for row in fields):
        fields = [row[1:] for row in fields]
    return fields


def _is_header(fields: list[list[str]]) -> bool:
    """Whether the first row names the columns: some field of it is a word."""
    plain = lambda field: looks_numeric(field) or looks_like_date(field)
    return any(not is_missing(field) and not plain(field) for field in fields[0])


def _commented_header(text_lines: Sequence[str], first: int, separator: str, width: int) -> list[str] | None:
    """The names in a comment right above the first row, as in `# t x`: as many words as there are columns."""
    above = text_lines[first - 2].strip() if first >= 2 else ""
    if not above.startswith("#"):
        return None
    words = _fields_of(above.lstrip("#").strip(), separator)
    plain = any(looks_numeric(word) or is_missing(word) for word in words)
    return words if len(words) == width and width > 1 and not plain else None


def _names(header: Sequence[str], width: int, notes: list[str]) -> list[str]:
    """Those of the header; a column without one is called by its number, from 1."""
    if header and width == len(header) + 1:  # as R writes tables
        notes.append("The header has one name less than there are columns: the first column is taken for names of the rows.")
        header = ["row", *header]
    width = max(width, len(header))
    return [header[i].strip().strip('"').strip() if i < len(header) and header[i] else str(i + 1) for i in range(width)]


def _check_widths(path: Path, names: list[str], fields: list[list[str]], lines: list[int]) -> None:
    for row, found in enumerate(fields):
        if len(found) != len(names):
            raise UserError(
                f"{path}, line {lines[row]} has {len(found)} field{'s' * (len(found) != 1)}, expected {len(names)} as in "
                "the other lines: complete or remove it"
            )
