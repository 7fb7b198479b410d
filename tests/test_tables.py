"""Tables as people have them: what is read in many spellings is the same, and what cannot be read is said in a sentence."""

import datetime
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagrax._choices import UserError
from lagrax.tables import Choice, read, select
from lagrax.tables._dates import calendar, dates
from lagrax.tables._numbers import marks, numbers


def table_of(tmp_path, text, encoding="utf-8", **options):
    file = tmp_path / "data.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return read(file, **options)


def series_of(tmp_path, text, encoding="utf-8", decimal=None, missing=None, **choice):
    return select(table_of(tmp_path, text, encoding, decimal=decimal, missing=missing), Choice(**choice))


PLAIN = "day,count\n1,2.5\n2,3.5\n3,\n4,1000.25\n"
SPELLINGS = {
    "semicolons and decimal commas": "day;count\n1;2,5\n2;3,5\n3;\n4;1000,25\n",
    "tabs": "day\tcount\n1\t2.5\n2\t3.5\n3\tNA\n4\t1000.25\n",
    "bars": "| day | count |\n| 1 | 2.5 |\n| 2 | 3.5 |\n| 3 | - |\n| 4 | 1000.25 |\n",
    "spaces": "  day   count\n  1  2.5\n 2   3.5\n  3   nan\n  4 1000.25\n",
    "quotes": '"day","count"\n"1","2.5"\n"2","3.5"\n"3","N/A"\n"4","1000.25"\n',
    "thousands": 'day,count\n1,2.5\n2,3.5\n3,null\n4,"1,000.25"\n',
    "thousands by points": "day;count\n1;2,5\n2;3,5\n3;?\n4;1.000,25\n",
    "thousands by spaces": "day;count\n1;2,5\n2;3,5\n3;\n4;1\u202f000,25\n",
    "separators at the end": "day,count,\n1,2.5,\n2,3.5,\n3,,\n4,1000.25,\n",
    "comments and blank lines": "# from the lab\n\nday,count\n1,2.5\n\n# a note\n2,3.5\n3,\n,\n4,1000.25\n\n".replace(
        "\n,\n", "\n"
    ),
    "a title": "Counts of flies\nday,count\n1,2.5\n2,3.5\n3,\n4,1000.25\n",
    "a header that is a comment": "# day count\n1 2.5\n2 3.5\n3 NaN\n4 1000.25\n",
    "carriage returns": PLAIN.replace("\n", "\r\n"),
    "old Macs": PLAIN.replace("\n", "\r"),
    "Fortran": "day count\n1 2.5D0\n2 0.35D+01\n3 NA\n4 1.00025D3\n",
    "names of rows, as R writes": '"day" "count"\n"a" 1 2.5\n"b" 2 3.5\n"c" 3 NA\n"d" 4 1000.25\n',
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(tmp_path, name):
    found = series_of(tmp_path, SPELLINGS[name], time="day", value=["count"])
    np.testing.assert_array_equal(found.t, [1, 2, 3, 4])
    np.testing.assert_array_equal(found.y[:, 0], [2.5, 3.5, np.nan, 1000.25])
    assert found.unit == "days" and found.groups == (("", 0, 4),)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_encodings(tmp_path, encoding):
    found = series_of(tmp_path, "día;größe\n1;2,5\n2;3,5\n", encoding, time="día", value=["größe"])
    np.testing.assert_array_equal(found.y[:, 0], [2.5, 3.5])


def test_without_header_or_time(tmp_path):
    found = series_of(tmp_path, "3,1\n4,2\n5,7\n", value=["2"], step=0.5)
    np.testing.assert_array_equal(found.t, [0, 0.5, 1])
    np.testing.assert_array_equal(found.y[:, 0], [1, 2, 7])
    found = series_of(tmp_path, "x\n1,5\n2,5\n", value=["x"])
    np.testing.assert_array_equal(found.y[:, 0], [1.5, 2.5])


finite = st.floats(-1e12, 1e12, allow_nan=False).map(lambda x: round(x, 4))


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(finite, st.one_of(finite, st.none())), min_size=3, max_size=20),
    separator=st.sampled_from([",", ";", "\t", "|", " "]),
    decimal=st.sampled_from([".", ","]),
    missing=st.sampled_from(["NA", "nan", "-", "?"]),
    quote=st.booleans(),
)
def test_what_is_written_is_read(tmp_path_factory, rows, separator, decimal, missing, quote):
    quote = quote or (separator == "," and decimal == ",")
    spell = lambda x: missing if x is None else f"{x:.4f}".replace(".", decimal)
    field = lambda x: f'"{spell(x)}"' if quote else spell(x)
    text = f"a{separator}b\n" + "".join(f"{field(a)}{separator}{field(b)}\n" for a, b in rows)
    file = tmp_path_factory.mktemp("tables") / "data.csv"
    file.write_text(text)
    found = read(file)
    np.testing.assert_array_equal(found.numbers(0), [a for a, _ in rows])
    np.testing.assert_array_equal(found.numbers(1), [math.nan if b is None else b for _, b in rows])


@pytest.mark.parametrize(
    "fields, mark",
    [
        (["1.5", "2"], "."), (["1,5", "2"], ","), (["1.234,5"], ","), (["1,234.5"], "."), (["1,234,567"], "."),
        (["1,234", "2"], None), (["1,234", "0.5"], "."), (["0,123"], ","), (["1.234", "0,5"], ","), (["abc"], "."),
        (["1.208", "780"], None), (["-1.208", "-780"], None), (["1.208", "780", "1.234.567"], ","), (["1.208", "78"], "."),
        (["1.208", "0.780"], "."), (["1.208", "780.0"], "."), (["1.208", "2.345"], "."), (["1.208", "-999"], "."),
        (["1.208", "780", "0.5"], "."),
    ],
)  # fmt: skip
def test_decimal_mark(tmp_path, fields, mark):
    assert table_of(tmp_path, "x;s\n" + "".join(f"{field};a\n" for field in fields)).mark(0) == mark
    assert marks(fields).open == (mark is None)


def test_only_columns_that_are_asked_for_say_what_a_mark_is(tmp_path):
    text = "day;clock;x;y;z\n1;08.15;13,076;0,5;0.5\n2;09.16;8,797;1;1\n3;10.17;1,369;2,5;2.5\n"
    for other, mark in ([], None), (["y"], ","), (["z"], "."), (["y", "z"], None):
        if mark is None:
            with pytest.raises(UserError, match=r"line 2, column x: '13,076' may be 13\.076 or 13076: say which"):
                series_of(tmp_path, text, time="day", value=["x", *other])
        else:
            found = series_of(tmp_path, text, time="day", value=["x", *other])
            assert found.y[0, 0] == (13.076 if mark == "," else 13076)
    found = series_of(tmp_path, text, time="day", value=["y", "z"])
    np.testing.assert_array_equal(found.y, [[0.5, 0.5], [1, 1], [2.5, 2.5]])
    text = "day;t;x;y\n1;1;1.208;0,5\n2;2;2.780;1,5\n3;3.5;3.737;2,5\n"
    with pytest.raises(UserError, match=r"may be 1\.208 or 1208"):
        series_of(tmp_path, text, time="day", value=["x"])
    assert series_of(tmp_path, text, time="day", value=["x"], decimal=".").y[0, 0] == 1.208
    assert series_of(tmp_path, text, time="day", value=["x"], inputs=["y"]).y[0, 0] == 1208
    assert series_of(tmp_path, text, time="t", value=["x"]).y[0, 0] == 1.208


def test_grouped_numbers():
    np.testing.assert_array_equal(numbers(["1.234", "0,5", "−3"], ","), [1234, 0.5, -3])
    np.testing.assert_array_equal(numbers(["1,234", "1'234.5", "-1e-3"], "."), [1234, 1234.5, -1e-3])


@pytest.mark.parametrize(
    "name, unit",
    [
        ("day_of_year", "days"), ("day of month", "days"), ("hour_of_day", "hours"), ("hours since day 0", "hours"),
        ("minutes (24 hours)", "minutes"), ("days since year start", "days"), ("Time (hours; day 1 = start)", "hours"),
        ("time [s]", ""), ("Year", "years"), ("time (weeks)", "weeks"),
    ],
)  # fmt: skip
def test_the_first_unit_in_a_name_is_that_of_time(tmp_path, name, unit):
    assert series_of(tmp_path, f"{name},x\n1,5\n2,6\n3,5\n", time=name, value=["x"]).unit == unit


def monthly(start=0, count=30):
    return np.datetime64("1999-01") + start + np.arange(count)


DATES = {
    "ISO": lambda d: f"{d}",
    "slashes": lambda d: f"{d.year}/{d.month}/{d.day}",
    "day first": lambda d: f"{d.day:02d}.{d.month:02d}.{d.year}",
    "month first": lambda d: f"{d.month}/{d.day}/{d.year}",
    "names": lambda d: d.strftime("%d %b %Y"),
    "American names": lambda d: d.strftime("%B %d, %Y"),
    "with a clock": lambda d: f"{d}T00:00:00Z",
    "in a zone": lambda d: f"{d} 00:00:00+02:00",
    "compact": lambda d: d.strftime("%Y%m%d"),
    "weeks": lambda d: "{}-W{:02d}-{}".format(*d.isocalendar()),
}


@pytest.mark.parametrize("name", DATES)
def test_days(tmp_path, name):
    days = [datetime.date(2019, 12, 20) + datetime.timedelta(days=i) for i in range(90)]
    text = "when;x\n" + "".join(f"{DATES[name](day)};{i % 7}\n" for i, day in enumerate(days))
    found = series_of(tmp_path, text, time="when", value=["x"])
    np.testing.assert_array_equal(found.t, np.arange(90))
    assert found.unit == "days"
    assert found.calendar.dates(np.array([90.0]))[0] == "2020-03-19"
    assert "2019-12-20" in found.notes[-1]


@pytest.mark.parametrize(
    "spell",
    [
        str,
        lambda m: f"{m}-15",
        lambda m: str((m + 1).astype("datetime64[D]") - 1),
        lambda m: m.item().strftime("%b %Y"),
        lambda m: m.item().strftime("%m/%Y"),
        lambda m: m.item().strftime("%d/%m/%Y"),  # 01/02/1999: by the steadier steps
        lambda m: m.item().strftime("%Y%m"),
    ],
)
def test_months_count_as_one_each(tmp_path, spell):
    text = "when,x\n" + "".join(f"{spell(month)},{i % 5}\n" for i, month in enumerate(monthly()))
    found = series_of(tmp_path, text, time="when", value=["x"])
    np.testing.assert_array_equal(found.t, np.arange(30))
    assert found.unit == "months" and found.calendar.dates(np.array([37.0]))[0].startswith("2002-02")


def test_dates_with_an_offset_stay_in_local_time(tmp_path):
    spring = [datetime.date(2020, 3, 20) + datetime.timedelta(days=i) for i in range(20)]
    summer = lambda day: "+02:00" if day > datetime.date(2020, 3, 29) else "+01:00"
    days = "when,x\n" + "".join(f"{day}T00:00:00{summer(day)},{day.day}\n" for day in spring)
    for form in None, "%Y-%m-%dT%H:%M:%S%z":
        found = series_of(tmp_path, days, time="when", value=["x"], date_format=form)
        np.testing.assert_array_equal(found.t, np.arange(20))
        assert found.calendar.dates(np.array([0.0, 20.0])) == ["2020-03-20", "2020-04-09"]
        assert found.notes[-1].endswith("; dates are in local time, whose offset from UTC changes.")
    found = series_of(tmp_path, days, time="when", value=["x"], where=["when>=2020-03-25"])
    assert found.y[0, 0] == 25
    found = series_of(tmp_path, days, time="when", value=["x"], where=["when>=2020-03-24T23:00:00Z"])
    assert found.y[0, 0] == 25

    clocks = ["01:00:00+01:00", "03:00:00+02:00", "04:00:00+02:00", "05:00:00+02:00"]
    hours = "when,x\n" + "".join(f"2020-03-29T{clock},{i}\n" for i, clock in enumerate(clocks))
    found = series_of(tmp_path, hours, time="when", value=["x"])
    np.testing.assert_array_equal(found.t, np.arange(4))
    assert found.calendar.dates(np.array([4.0])) == ["2020-03-29 05:00:00"]
    assert "all dates are in the local time of the first row, UTC+01:00" in found.notes[-1]

    months = "when,x\n" + "".join(f"{m}-01T00:00:00-0{5 - (m.item().month > 3)}:00,{i}\n" for i, m in enumerate(monthly()))
    found = series_of(tmp_path, months, time="when", value=["x"])
    np.testing.assert_array_equal(found.t, np.arange(30))
    for zone, words in ("Z", "UTC"), ("-03:30", "UTC-03:30"):
        found = series_of(
            tmp_path, f"when,x\n2020-01-01T00:00{zone},1\n2020-01-02T00:00{zone},2\n", time="when", value=["x"]
        )
        assert found.notes[-1].endswith(f"; dates are in local time, {words}.")


def test_units_fit_the_steps():
    start = np.datetime64("2020-01-06", "us")
    steps = {(7, "D"): "weeks", (1, "D"): "days", (6, "h"): "hours", (10, "m"): "minutes", (1, "s"): "seconds"}
    for (number, letters), unit in {**steps, (20, "ms"): "milliseconds"}.items():
        found = calendar(start + np.arange(20) * np.timedelta64(number, letters))
        assert found.unit == unit
        t = found.numbers(start + np.arange(20) * np.timedelta64(number, letters))
        np.testing.assert_allclose(np.diff(t), number if unit != "weeks" else 1, rtol=1e-6)
    years = np.array([f"{year}-07-01" for year in range(1990, 2010)], "datetime64[us]")
    assert calendar(years).unit == "years"
    np.testing.assert_array_equal(calendar(years).numbers(years), np.arange(20))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)), min_size=1, max_size=5))
def test_iso_dates_round_trip(moments):
    found = dates([moment.isoformat(" ", "microseconds") for moment in moments], None)
    assert found.tolist() == moments


def test_dates_from_several_columns(tmp_path):
    text = "year,month,sst\n" + "".join(f"{1870 + i // 12},{1 + i % 12},{20 + i % 5}\n" for i in range(40))
    found = series_of(tmp_path, text, time="year,month", value=["sst"])
    np.testing.assert_array_equal(found.t, np.arange(40))
    assert found.unit == "months"
    with pytest.raises(UserError, match="--time year,month"):
        series_of(tmp_path, text, time="year", value=["sst"])


def test_rows_by_condition_and_groups(tmp_path):
    text = "set,day,x,u\n" + "".join(f"{s},{d},{s * d},{d % 3}\n" for d in range(1, 6) for s in (1, 2, 4))
    found = series_of(tmp_path, text, time="day", value=["x"], where=["set=4"], inputs=["u"])
    np.testing.assert_array_equal(found.y[:, 0], [4, 8, 12, 16, 20])
    np.testing.assert_array_equal(found.inputs[:, 0], [1, 2, 0, 1, 2])
    both = series_of(tmp_path, text, time="day", value=["x"], where=["set!=4", "day<=3"], group="set")
    assert both.groups == (("1", 0, 3), ("2", 3, 6))
    np.testing.assert_array_equal(both.y[:, 0], [1, 2, 3, 2, 4, 6])
    np.testing.assert_array_equal(both.t, [1, 2, 3, 1, 2, 3])
    text = "date,place,x\n" + "".join(f"2020-01-{d:02d},Rome,{d}\n" for d in range(1, 9))
    found = series_of(tmp_path, text, time="date", value=["x"], where=["date>=2020-01-05", "place=Rome"])
    np.testing.assert_array_equal(found.y[:, 0], [5, 6, 7, 8])


def test_one_value_is_found_without_its_name(tmp_path):
    assert series_of(tmp_path, PLAIN, time="Day").names == ("count",)


WRONG = {
    "empty": ("", {}, "is empty"),
    "blank": ("\n \n# nothing\n", {}, "only blank lines and comments"),
    "a header alone": ("day,count\n", {}, "no rows below"),
    "no numbers": ("a,b\nx,y\nz,w\n", {"time": None, "value": []}, "no column of numbers"),
    "no numbers in the column": ("day,count\n1,NA\n2,\n", {}, "has no numbers in the 2 rows"),
    "one column": ("x\n1\n2\n", {"time": None, "value": []}, "has one column, x, and no times: --value x"),
    "one column, and times asked for": ("x\n1\n2\n", {}, "no column day (--time): its only column is x"),
    "constant": ("day,count\n1,5\n2,5\n3,5\n", {}, "constant (5 in 3 rows)"),
    "duplicate times": ("day,count\n1,5\n2,6\n2,7\n", {}, "line 4: day is 2 again (line 3)"),
    "decreasing times": ("day,count\n1,5\n3,6\n2,7\n", {}, "line 4: day is 2 after 3 (line 3)"),
    "several series": ("s,day,count\n" + "".join(f"{i // 9},{i % 9},{i}\n" for i in range(18)), {}, "--where s=0 takes one"),
    "mixed types": ("day,count\n1,5\n2,six\n3,seven\n4,8\n", {}, "line 3, column count: 'six' is not a number (nor are 1"),
    "mixed times": ("day,count\n1,5\n2,6\nlast,7\n", {}, "line 4, column day: 'last' is not a number"),
    "infinite": ("day,count\n1,5\n2,inf\n", {}, "'inf' is not a number"),
    "underscores": ("day,count\n1,5\n2,1_000\n", {}, "'1_000' is not a number"),
    "thousands or decimals": ('day,count\n1,"1,234"\n2,"5,678"\n', {}, "may be 1.234 or 1234: say which with --decimal"),
    "thousands by points or decimals": ("day;count\n1;1.208\n2;780\n", {}, "'1.208' may be 1.208 or 1208: say which with"),
    "sizes of either": ("day;count;z\n1;5;1,208\n2;6;780\n", {"where": ["z>800"]}, "'1,208' may be 1.208 or 1208"),
    "a column misspelt": ("day,count\n1,5\n2,6\n", {"value": ["cuont"]}, "did you mean count? its columns are day, count"),
    "a column twice": ("day,x,x\n1,5,6\n2,6,7\n", {"value": ["x"]}, "2 columns called x"),
    "no value named": ("day,x,z\n1,5,6\n2,6,7\n", {"value": []}, "which column is to be fitted?"),
    "time as value": ("day,x\n1,5\n2,6\n", {"value": ["day"]}, "both --time and --value"),
    "value as input": ("day,x\n1,5\n2,6\n", {"value": ["x"], "inputs": ["x"]}, "asked for twice"),
    "no time": ("day,count\n1,5\n,6\n3,7\n", {}, "line 3 has no day"),
    "no date": ("day,count\n2020-01-01,5\n,6\n2020-01-03,7\n", {}, "line 3 has no day"),
    "a line too short": ("day,count,z\n1,5,6\n2,6\n3,7,8\n", {}, "line 3 has 2 fields, expected 3"),
    "a line too long": ("day,count\n1,5\n2,6,7,8\n3,7\n", {}, "line 3 has 4 fields, expected 2"),
    "dates in two ways": ("day,count\n2020-01-01,5\n2.1.2020,6\n", {}, "line 3, column day: '2.1.2020' is not a date like"),
    "day or month": ("day,count\n01/02/2020,5\n01/03/2020,6\n", {}, "may have the day first or the month"),
    "day and month": ("day,count\n13/02/2020,5\n02/13/2020,6\n", {}, "another order of day and month"),
    "no such day": ("day,count\n2020-02-28,5\n2020-02-30,6\n", {}, "line 3, column day: '2020-02-30' has no possible day"),
    "which century": ("day,count\n13.02.20,5\n14.02.20,6\n", {}, "year of two digits"),
    "no date at all": ("day,count\nsoon,5\nlater,6\n", {}, "'soon' is neither a number nor a date"),
    "another format": ("day,count\n1.2.2020,5\n2.2.2020,6\n", {"date_format": "%Y-%m-%d"}, "not a date in the format"),
    "no rows chosen": ("day,count,s\n1,5,a\n2,6,b\n", {"where": ["s=c"]}, "leaves no rows: s is a or b"),
    "no comparison": ("day,count\n1,5\n2,6\n", {"where": ["day"]}, "expected a comparison such as"),
    "sizes of words": ("day,count,s\n1,5,a\n2,6,b\n", {"where": ["s<c"]}, "use = or !="),
    "a place-holder": ("day,count\n1,5\n2,6\n3,-9999\n4,7\n", {}, "--missing -9999"),
    "binary": (bytes(range(256)) * 4, {}, "is not text"),
    "binary without zeros": (bytes(range(1, 256)) * 4, {}, "is not text"),
    "Excel": (b"PK\x03\x04....", {}, "save the sheet as CSV"),
    "JSON": ('{"a": [1, 2]}', {}, "JSON"),
    "a quotation mark": ('day,count\n1,"5\n2,6\n', {}, ""),
    "not quite Parquet": (b"PAR1 and nothing else", {}, "Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_one_sentence(tmp_path, name):
    text, choice, part = WRONG[name]
    with pytest.raises(UserError) as raised:
        series_of(tmp_path, text, **{"time": "day", "value": ["count"], **choice})
    assert part in str(raised.value) and "\n" not in str(raised.value)


def test_what_the_sentences_advise_helps(tmp_path):
    found = series_of(tmp_path, 'day,count\n1,"1,234"\n2,"5,678"\n', decimal=",", time="day", value=["count"])
    np.testing.assert_array_equal(found.y[:, 0], [1.234, 5.678])
    found = series_of(tmp_path, WRONG["a place-holder"][0], missing="-9999", time="day", value=["count"])
    np.testing.assert_array_equal(found.y[:, 0], [5, 6, np.nan, 7])
    found = series_of(tmp_path, WRONG["a place-holder"][0], missing="none", time="day", value=["count"])
    assert found.y[2, 0] == -9999
    found = series_of(tmp_path, WRONG["day or month"][0], date_format="%d/%m/%Y", time="day", value=["count"])
    assert found.unit == "months"
    found = series_of(tmp_path, WRONG["several series"][0], group="s", time="day", value=["count"])
    assert len(found.groups) == 2


def test_parquet_is_read_as_text_is(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    days = [datetime.datetime(2020, 1, day) for day in range(1, 6)]
    columns = {"when": days, "x": [1.5, None, 2.0, 3.25, 1e-7], "s": ["a", "a", "b", "b", "b"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "data.parquet")
    found = select(read(tmp_path / "data.parquet"), Choice(time="when", value=["x"]))
    np.testing.assert_array_equal(found.y[:, 0], [1.5, np.nan, 2, 3.25, 1e-7])
    assert found.unit == "days"
    with pytest.raises(UserError, match="no column y"):
        select(read(tmp_path / "data.parquet"), Choice(time="when", value=["y"]))
