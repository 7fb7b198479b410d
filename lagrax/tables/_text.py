"""A file's bytes as lines of text, whatever its encoding; what is no text is refused with its proper name."""

import codecs
import re
from pathlib import Path

from .._choices import UserError

_FOREIGN = {
    b"PK\x03\x04": "an Excel workbook or a zip archive: save the sheet as CSV, or unpack it",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the sheet as CSV",
    b"\x1f\x8b": "compressed by gzip: unpack it",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it",
    b"%PDF": "a PDF: copy the table into a CSV file",
    b"\x89HDF": "an HDF5 file: write the columns to a CSV file",
}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def lines_of(path: Path, content: bytes) -> list[str]:
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
