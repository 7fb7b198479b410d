"""Numbers as people write them: 1234.5, 1234,5, 1,234.5, 1.234,5, 1 234,5, 1'234.5, 1.2e3, NA."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

import numpy as np

MISSING = frozenset(
    ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "-", "--", ".", "..", "?", "*", "missing", "#value!", "#div/0!")
)
"""What stands for a value that is not there, in small letters."""

_EXPONENT = r"(?:[eEdD][+-]?\d{1,3})?"
_COMMA_DECIMAL = re.compile(rf"[+-]?(?:\d*|\d{{1,3}}(?:[.' \u00a0\u202f]\d{{3}})+),\d+{_EXPONENT}")
_POINT_DECIMAL = re.compile(rf"[+-]?(?:\d*|\d{{1,3}}(?:[,' \u00a0\u202f]\d{{3}})+)\.\d+{_EXPONENT}")
_COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
_POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+")
_WHOLE = re.compile(r"[+-]?(?!9+$)[1-9]\d{2,}")  # 100 or more, but for 999, 9999, … that stand for missing values
_STRICT = {
    mark: re.compile(rf"[+-]?(?:\d+|\d{{1,3}}(?:[{other}' \u00a0\u202f]\d{{3}})+)?(?:{re.escape(mark)}\d*)?{_EXPONENT}")
    for mark, other in ((".", ","), (",", "."))
}
_GROUPING = str.maketrans("", "", "' \u00a0\u202f")


class NotANumber(ValueError):
    """`row` of the column holds `text`, which `why` says more of."""

    def __init__(self, row: int, text: str, why: str = "is not a number"):
        super().__init__(f"{text!r} {why}")
        self.row, self.text, self.why = row, text, why


def is_missing(text: str) -> bool:
    return text.lower() in MISSING


def looks_numeric(text: str) -> bool:
    """With either decimal mark."""
    text = text.replace("\u2212", "-")
    return any(mark.isdigit() for mark in text) and any(pattern.fullmatch(text) for pattern in _STRICT.values())


@dataclasses.dataclass(frozen=True)
class Marks:
    """What the fields of one column say of the mark of decimals.

    `mark`: "." or ",", None if they do not say. `open`: some, such as 1,234, may be one number or another, and nothing in
    the column makes one of them likelier. `grouped`: some, such as 1.234, would be another number with a decimal comma.
    """

    mark: str | None
    open: bool
    grouped: bool


def marks(fields: Sequence[str]) -> Marks:
    """1,5 and 1.234,5 speak for a comma, 1.5 and 1,234.5 for a point; with both it is the point, and others are no numbers.

    1,234 alone is both, and is never guessed at. Nor is 1.234 beside 780, which with three decimals would be 780.000; where
    all numbers are like 1.234, it is read as every program does.
    """
    comma = point = both = grouped = whole = False
    for field in set(fields):
        if "," in field:
            if _COMMA_GROUPS.fullmatch(field):
                # 1,234,567 has one mark too many for a decimal comma.
                point, both = point or field.count(",") > 1, True
            else:
                comma = comma or _COMMA_DECIMAL.fullmatch(field) is not None
                point = point or _POINT_DECIMAL.fullmatch(field) is not None
        elif "." in field:
            if _POINT_GROUPS.fullmatch(field):
                comma, grouped = comma or field.count(".") > 1, True
            else:
                point = point or _POINT_DECIMAL.fullmatch(field) is not None
        else:
            whole = whole or _WHOLE.fullmatch(field) is not None
    mark = "." if point else "," if comma else None
    return Marks(mark, mark is None and (both or (grouped and whole)), grouped)


def common_mark(columns: Iterable[Marks]) -> str | None:
    """The mark that all columns which speak for one agree on."""
    found = {column.mark for column in columns} - {None}
    return found.pop() if len(found) == 1 else None


def numbers(texts: Sequence[str], mark: str | None) -> np.ndarray:
    """A column as numbers (n,), NaN where it is missing. `mark`: of decimals; None refuses what it would matter for."""
    if mark == ".":
        try:
            plain = np.array(list(map(float, texts)), float)
        except ValueError:
            pass
        else:
            # Python's own spellings that are no numbers in a table: inf, and 1_000.
            if not np.isinf(plain).any() and not any("_" in text for text in texts):
                return plain
    known: dict[str, float] = {}
    found = np.empty(len(texts))
    for row, text in enumerate(texts):
        value = known.get(text)
        if value is None:
            value = known[text] = _number(row, text, mark)
        found[row] = value
    return found


def _number(row: int, text: str, mark: str | None) -> float:
    if is_missing(text):
        return np.nan
    plain = text.replace("\u2212", "-")
    if mark is None:
        if ("," in plain and looks_numeric(plain)) or _POINT_GROUPS.fullmatch(plain):
            one, other = plain.replace(",", "."), plain.replace(",", "").replace(".", "")
            raise NotANumber(row, text, f"may be {one} or {other}: say which with --decimal , or --decimal .")
        mark = "."
    if not any(letter.isdigit() for letter in plain) or not _STRICT[mark].fullmatch(plain):
        raise NotANumber(row, text)
    plain = plain.translate(_GROUPING)
    plain = plain.replace(".", "").replace(",", ".") if mark == "," else plain.replace(",", "")
    value = float(re.sub("[dD]", "e", plain))
    if np.isinf(value):
        raise NotANumber(row, text, "is too large for a number")
    return value
