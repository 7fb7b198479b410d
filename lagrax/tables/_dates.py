"""Dates as numbers: which format a column is in, which unit fits its steps, and back from numbers to dates."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?:(?:T|\s+)(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?)?"
_ZONE = r"\s*(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)?"
_WORD = r"(?P<word>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"

_FORMATS = {
    "year first": rf"(?P<year>\d{{4}})(?P<mark>[-/.])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}})(?:{_CLOCK}{_ZONE})",
    "year and month": r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})",
    "year and quarter": r"(?P<year>\d{4})[- ]?Q(?P<quarter>[1-4])",
    "quarter and year": r"Q(?P<quarter>[1-4])[- /]?(?P<year>\d{4})",
    "year and week": r"(?P<year>\d{4})-?W(?P<week>\d\d)(?:-?(?P<weekday>[1-7]))?",
    "numbers": rf"(?P<first>\d{{1,2}})(?P<mark>[-/.])(?P<other>\d{{1,2}})(?P=mark)(?P<year>\d{{4}}|\d\d){_CLOCK}",
    "month and year": r"(?P<month>\d{1,2})[-/.](?P<year>\d{4})",
    "day, month, year": rf"(?P<day>\d{{1,2}})[- .]+{_WORD}[- ,]+(?P<year>\d{{4}}){_CLOCK}",
    "month, day, year": rf"{_WORD}[- ]+(?P<day>\d{{1,2}}),?[- ]+(?P<year>\d{{4}}){_CLOCK}",
    "month by name": rf"{_WORD}[- ,/]*(?P<year>\d{{4}})",
    "year, month by name": rf"(?P<year>\d{{4}})[- ,/]*{_WORD}",
}
_PATTERNS = {name: re.compile(text, re.IGNORECASE) for name, text in _FORMATS.items()}


class DateError(ValueError):
    """`row` (None for the column as a whole) cannot be read as a date; the sentence says why."""

    def __init__(self, row: int | None, why: str):
        super().__init__(why)
        self.row = row


def looks_like_date(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in _PATTERNS.values())


def dates(texts: Sequence[str], given: str | None) -> np.ndarray:
    """A column as dates (n,), in microseconds, by one clock. `given`: a format of strptime; None finds one out."""
    return by_one_clock(*local_dates(texts, given))[0]


def by_one_clock(local: np.ndarray, offsets: np.ndarray | None) -> tuple[np.ndarray, str]:
    """Local dates, with their offsets from UTC, as dates that can be compared, and in words what a clock then shows.

    All get the offset of the first. But dates at one time of day, with offsets an hour apart, stay as they are: they are
    days, whatever summer time does.
    """
    if offsets is None:
        return local, ""
    if offsets.min() == offsets.max():
        return local, f"dates are in local time, {_offset(offsets[0])}"
    of_day = local - local.astype("datetime64[D]")
    if np.all(of_day == of_day[0]) and np.ptp(offsets) <= 60:
        return local, "dates are in local time, whose offset from UTC changes"
    shown = local - (offsets - offsets[0]).astype("timedelta64[m]")
    return (
        shown,
        f"all dates are in the local time of the first row, {_offset(offsets[0])}, although other rows have another",
    )


def _offset(minutes: int) -> str:
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "UTC"


def local_dates(texts: Sequence[str], given: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Dates as they are written, and their offsets from UTC in minutes, 0 where one has none; None if none has."""
    if given is not None:
        return _by_format(texts, given)
    name = next((name for name, pattern in _PATTERNS.items() if pattern.fullmatch(texts[0])), None)
    if name is None:
        raise DateError(0, f"{texts[0]!r} is neither a number nor a date known here: say --date-format, such as '%d.%m.%Y'")
    parts = _parts(texts, _PATTERNS[name], name)
    if "first" in parts:
        parts["day"], parts["month"] = _order(parts.pop("first"), parts.pop("other"), parts["year"], texts)
    offsets = parts.pop("zone", None)
    return _assemble(parts, texts), offsets


def _by_format(texts: Sequence[str], given: str) -> tuple[np.ndarray, np.ndarray | None]:
    known: dict[str, datetime] = {}
    for row, text in enumerate(texts):
        if text not in known:
            try:
                found = datetime.strptime(text, given)
            except ValueError:
                raise DateError(row, f"{text!r} is not a date in the format {given}: correct it, or --date-format") from None
            known[text] = found
    local = np.array([known[text].replace(tzinfo=None) for text in texts], "datetime64[us]")
    offsets = [known[text].utcoffset() for text in texts]
    if not any(offset is not None for offset in offsets):
        return local, None
    return local, np.array([0 if offset is None else round(offset.total_seconds() / 60) for offset in offsets])


def _parts(texts: Sequence[str], pattern: re.Pattern, name: str) -> dict[str, np.ndarray]:
    """Year, month, … of each date, as numbers; each only if the format has it."""
    rows: list[tuple] = []
    for row, text in enumerate(texts):
        found = pattern.fullmatch(text)
        if found is None:
            raise DateError(row, f"{text!r} is not a date like {texts[0]!r} before it: write all dates in one way")
        rows.append(found.groups(default=""))
    columns = dict(zip(sorted(pattern.groupindex, key=pattern.groupindex.__getitem__), zip(*rows, strict=True), strict=True))
    columns.pop("mark", None)
    parts: dict[str, np.ndarray] = {}
    for key, column in columns.items():
        if key == "word":
            parts["month"] = np.array([_MONTHS.index(word[:3].lower()) + 1 for word in column])
        elif key == "fraction":
            parts["microsecond"] = np.array([int(text[:6].ljust(6, "0")) for text in column])
        elif key == "zone":
            if any(column):
                parts["zone"] = np.array([_minutes(text) for text in column])
        elif key == "year" and any(len(text) == 2 for text in column):
            raise DateError(
                0, f"{texts[0]!r} has a year of two digits: say which century with --date-format, such as '%d.%m.%y'"
            )
        else:
            parts[key] = np.array([int(text or 0) for text in column])
    return parts


def _minutes(zone: str) -> int:
    return int(zone[0] + "1") * (60 * int(zone[1:3]) + int(zone[-2:])) if zone.startswith(("+", "-")) else 0


def _order(first: np.ndarray, other: np.ndarray, year: np.ndarray, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Day and month, by what can be a month in the whole column; or, if both can, by which order makes steady steps."""
    day_first, month_first = other.max() <= 12, first.max() <= 12
    if not day_first and not month_first:
        row = int(np.argmax(first > 12) if np.argmax(first > 12) > np.argmax(other > 12) else np.argmax(other > 12))
        raise DateError(row, f"{texts[row]!r} has another order of day and month than dates before it: write all in one way")
    if day_first and month_first:
        return _steadier(first, other, year, texts)
    return (first, other) if day_first else (other, first)


def _steadier(first: np.ndarray, other: np.ndarray, year: np.ndarray, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The only order of day and month in which the dates increase by steps of nearly one size, if there is such a one."""
    steady = []
    for day, month in ((first, other), (other, first)):
        steps = np.diff(_assemble({"year": year, "month": month, "day": day}, texts)).astype(np.int64)
        if len(steps) > 1 and steps.min() > 0 and steps.max() < 1.2 * steps.min():
            steady.append((day, month))
    if len(steady) == 1:
        return steady[0]
    raise DateError(
        None,
        f"{texts[0]!r} and all other dates may have the day first or the month: say --date-format '%d/%m/%Y' or "
        "'%m/%d/%Y', with the marks that are in the file",
    )


def _assemble(parts: dict[str, np.ndarray], texts: Sequence[str]) -> np.ndarray:
    years = (parts["year"] - 1970).astype("datetime64[Y]")
    if "week" in parts:
        return _from_weeks(years, parts, texts)
    month = 3 * parts["quarter"] - 2 if "quarter" in parts else parts.get("month", np.ones_like(parts["year"]))
    day = parts.get("day", np.ones_like(month))
    _check(month, 1, 12, "month", texts)
    whole = years.astype("datetime64[M]") + (month - 1)
    last = ((whole + 1).astype("datetime64[D]") - np.timedelta64(1, "D") - whole.astype("datetime64[D]")).astype(int) + 1
    _check(day, 1, last, "day", texts)
    found = (whole.astype("datetime64[D]") + (day - 1)).astype("datetime64[us]")
    for name, most, size in (("hour", 24, 3600), ("minute", 59, 60), ("second", 60, 1)):
        if name in parts:
            _check(parts[name], 0, most, name, texts)
            found = found + (parts[name] * size * 1_000_000).astype("timedelta64[us]")
    return found + parts["microsecond"].astype("timedelta64[us]") if "microsecond" in parts else found


def _from_weeks(years: np.ndarray, parts: dict[str, np.ndarray], texts: Sequence[str]) -> np.ndarray:
    """ISO weeks: the first has the fourth of January, and weeks begin on Monday."""
    _check(parts["week"], 1, 53, "week", texts)
    fourth = years.astype("datetime64[D]") + 3
    monday = fourth - ((fourth.astype(int) + 3) % 7)  # day 0, 1970-01-01, was a Thursday
    day = np.maximum(parts.get("weekday", 0), 1) - 1
    return (monday + 7 * (parts["week"] - 1) + day).astype("datetime64[us]")


def _check(values: np.ndarray, low: int, high: int | np.ndarray, name: str, texts: Sequence[str]) -> None:
    wrong = (values < low) | (values > high)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DateError(row, f"{texts[row]!r} has no possible {name}: correct it, or say the format with --date-format")


@dataclasses.dataclass(frozen=True)
class Calendar:
    """Times as numbers: `unit`s since `origin`, and dates again of numbers beyond the record.

    `whole`: the dates are the same day of their months, or the last: months count as one each, however long they are.
    """

    unit: str
    origin: np.datetime64
    whole: bool = False

    def numbers(self, found: np.ndarray) -> np.ndarray:
        if self.whole:
            months = (found.astype("datetime64[M]") - self.origin.astype("datetime64[M]")).astype(float)
            return months / _MONTHS_OF[self.unit]
        return _COUNT[self.unit](found) - _COUNT[self.unit](np.array([self.origin]))[0]

    def dates(self, t: np.ndarray) -> list[str]:
        """The dates of times, to the nearest day where the unit is one or longer and the record knows no hours."""
        midnight = self.origin == self.origin.astype("datetime64[D]")
        whole_days = self.unit in _MONTHS_OF or (self.unit in ("days", "weeks") and midnight)
        precision = "D" if whole_days else "ms" if self.unit == "milliseconds" else "s"
        half = np.timedelta64({"D": 43_200_000_000, "s": 500_000, "ms": 500}[precision], "us")
        return [str(moment).replace("T", " ") for moment in (self.moments(t) + half).astype(f"datetime64[{precision}]")]

    def moments(self, t: np.ndarray) -> np.ndarray:
        """The moments of times (n,), as datetime64."""
        if self.unit in _MONTHS_OF:
            return self._months_later(np.asarray(t, float) * _MONTHS_OF[self.unit])
        return self.origin + np.round(np.asarray(t, float) * _SECONDS[self.unit] * 1e6).astype("timedelta64[us]")

    def _months_later(self, months: np.ndarray) -> np.ndarray:
        start = self.origin.astype("datetime64[M]")
        day = int((self.origin.astype("datetime64[D]") - start.astype("datetime64[D]")).astype(int)) + 1
        share = (day - 1) / int(_days_in(start))
        first = start + np.floor(months + (0 if self.whole else share) + 1e-6).astype(int)
        if self.whole:
            last = day == int(_days_in(start))
            days = _days_in(first) if last else np.minimum(day, _days_in(first))
        else:
            days = 1 + np.floor((months + share + 1e-6) % 1 * _days_in(first)).astype(int)
        return (first.astype("datetime64[D]") + (days - 1)).astype("datetime64[us]")


def _days_in(month: np.ndarray) -> np.ndarray:
    return ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int)


def _month_count(found: np.ndarray) -> np.ndarray:
    """Months since 1970, with the part of the month as a fraction."""
    month = found.astype("datetime64[M]")
    share = (found - month.astype("datetime64[us]")).astype(float) / (_days_in(month) * 86_400e6)
    return month.astype(int) + share


_SECONDS = {"weeks": 604_800.0, "days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0, "milliseconds": 1e-3}
_MONTHS_OF = {"months": 1.0, "years": 12.0}


def _count_in(seconds: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda found: found.astype("datetime64[us]").astype(np.int64) / (seconds * 1e6)


_COUNT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **{unit: _count_in(seconds) for unit, seconds in _SECONDS.items()},
    "months": _month_count,
    "years": lambda found: _month_count(found) / 12,
}


def calendar(found: np.ndarray) -> Calendar:
    """The calendar that fits increasing dates: the largest unit that the usual step has at least one of."""
    origin = found.min()
    steps = np.diff(found).astype("timedelta64[us]").astype(float) / 86_400e6
    steps = steps[steps > 0] if np.any(steps > 0) else np.ones(1)
    usual = float(np.median(steps))
    if usual > 27.5:
        return Calendar("years" if usual > 360 else "months", origin, _whole_months(found))
    if usual > 6.9 and np.all(np.abs(steps / 7 - np.round(steps / 7)) < 1e-6):
        return Calendar("weeks", origin)
    fits = (name for name, size in _SECONDS.items() if name != "weeks" and usual * 86_400 >= size * 0.999)
    return Calendar(next(fits, "milliseconds"), origin)


def _whole_months(found: np.ndarray) -> bool:
    """Whether the dates are the same day of different months, or their last days, or about their middle."""
    month = found.astype("datetime64[M]")
    day = (found.astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int) + 1
    same = day.max() == day.min() or np.all(day == _days_in(month)) or (day.min() > 13 and day.max() < 18)
    return bool(same and np.all(np.diff(month).astype(int) != 0))
