"""Numbers as people write them: 1234.5, 1234,5, 1,234.5, 1.234,5, 1 234,5, 1'234.5, 1.2e3, NA."""

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


def decimal_mark(columns: Iterable[Sequence[str]]) -> str | None:
    """The decimal mark that the fields speak for, "." or ","; None if commas may be either.

    1,5 and 1.234,5 speak for a comma, 1.5 and 1,234.5 for a point. 1,234 alone is both, and is never guessed at; 1.234 alone
    is read as every program does. Fields that speak for both marks: the point, and the others will be no numbers.
    """
    comma = point = both = False
    for column in columns:
        for field in column:
            if "," in field:
                if _COMMA_GROUPS.fullmatch(field):
                    # 1,234,567 has one mark too many for a decimal comma.
                    point, both = point or field.count(",") > 1, True
                else:
                    comma = comma or _COMMA_DECIMAL.fullmatch(field) is not None
                    point = point or _POINT_DECIMAL.fullmatch(field) is not None
            elif "." in field:
                grouped = re.fullmatch(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+", field) is not None
                point = point or (not grouped and _POINT_DECIMAL.fullmatch(field) is not None)
    if point:
        return "."
    if comma:
        return ","
    return None if both else "."


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
        if "," in plain and looks_numeric(plain):
            one, other = plain.replace(",", "."), plain.replace(",", "")
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
