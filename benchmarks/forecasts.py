"""Forecasts of real series on a temporal hold-out: `python -m benchmarks.forecasts FOLDER [NAME …]`.

One recipe for all series: the last 25 % are held out and forecast from rolling origins, beside an autoregression (AIC) and
AutoARIMA, which needs `make .venv-statsforecast/done`. FOLDER holds the files below, or some of them; results go to
`out/forecasts.jsonl`, of which `python -m benchmarks.forecasts --table` makes the table of docs/forecasting.md.
"""

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

import lagrax as lx
from lagrax.series._forecaster import spread_origins

from .r_series import R_SERIES

MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"

# File, column (several: a row holds so many samples), rows (a column and its value), season, horizon.
SERIES = {
    "blowflies": ("blowflies_nicholson_pomp.csv", "count", ("set", "4"), None, 38),
    "measles": ("measles_london_biweekly_1944_65.csv", "London", None, 26, 26),
    "laser": ("santafe_laser_10093.csv", "intensity", None, None, 24),
    "sunspots": ("sunspots_yearly_1700_2008.csv", "SUNACTIVITY", None, None, 22),
    "nino": ("nino34_hadisst_monthly_1870_2022.csv", "sst", None, 12, 24),
    "hare": ("hudson_bay_lynx_hare_1900_1920.csv", "Hare", None, None, 4),
    # In the folder statsmodels/datasets of an installation of statsmodels. Looked at once, when the recipe was ready.
    "elnino": ("elnino/elnino.csv", MONTHS, None, 12, 12),
    "equipment": ("elec_equip/elec_equip.csv", "STS.M.I7.W.TOVT.NS0016.4.000", None, 12, 12),
    "unemployment": ("macrodata/macrodata.csv", "unemp", None, 4, 8),
    "bills": ("macrodata/macrodata.csv", "tbilrate", None, 4, 8),
    "inflation": ("macrodata/macrodata.csv", "infl", None, 4, 8),
    "interest": ("interest_inflation/E6.csv", "R", None, 4, 8),
    "nile": ("nile/nile.csv", "volume", None, None, 10),
    "co2": ("co2/co2.csv", "co2", None, 52, 52),
    **{f"R-{name}": (f"R-{name}.csv", "value", None, one.season, one.horizon) for name, one in R_SERIES.items()},
}
PEER = Path(".venv-statsforecast/bin/python")
RESULTS = Path("out/forecasts.jsonl")


def read(folder: Path, name: str) -> np.ndarray:
    file, column, chosen, _, _ = SERIES[name]
    with open(folder / file) as lines:
        rows = [row for row in csv.DictReader(lines) if chosen is None or row[chosen[0]] == chosen[1]]
    return np.array([float(row[name] or "nan") for row in rows for name in column.split()])


def compare(folder: Path, name: str) -> dict:
    y, season, horizon = read(folder, name), *SERIES[name][3:]
    start = time.perf_counter()
    found = lx.fit_series(np.arange(len(y)) * 1.0, y, season=season, horizon=horizon)
    seconds = time.perf_counter() - start
    forecaster = found.forecasters["ar"]
    record = forecaster.records[0]
    origins = spread_origins(record, forecaster.first)
    origins = origins[(origins >= record.train - 1) & (origins + horizon < len(y))]
    given = {"y": y.tolist(), "train": record.train, "horizon": horizon, "season": season}
    given |= {"origins": origins.tolist(), "transform": found.settings["transform"]}
    scores = {key: None if score is None else [score.mase, score.coverage95] for key, score in found.holdout.scores.items()}
    row = {"series": name, "n": len(y), "chosen": found.chosen, "scores": scores, "seconds": seconds, "autoarima": None}
    if PEER.exists():
        peer = subprocess.run(
            [PEER, "benchmarks/with_autoarima.py"], input=json.dumps(given), capture_output=True, text=True
        )
        row["autoarima"] = json.loads(peer.stdout) if peer.returncode == 0 else None
    return row


def line(row: dict) -> str:
    mase, coverage = row["scores"][row["chosen"]]
    peers = (row["autoarima"] or {}).items()
    against = "".join(f", {mase / one['mase']:.2f} × AutoARIMA ({name}: {one['mase']:.3g})" for name, one in peers)
    own = row["scores"]["model"]
    model = "refused" if own is None else f"{own[0]:.3g}"
    ratio = mase / row["scores"]["ar"][0]
    return (
        f"{row['series']} (n = {row['n']}): MASE {mase:.3g} by {row['chosen']} (model {model}), "
        f"{ratio:.2f} × AR{against}; 95 % intervals cover {100 * coverage:.0f} %; {row['seconds']:.0f} s"
    )


def table() -> str:
    """Of all results, the newest of each series, in the order of `SERIES`."""
    rows = {row["series"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}
    lines = [
        "| series | samples | forecast by | MASE | times AR's | inside the 95 % interval |",
        "|---|---|---|---|---|---|",
    ]
    for name in filter(rows.__contains__, SERIES):
        row = rows[name]
        mase, coverage = row["scores"][row["chosen"]]
        ratio = mase / row["scores"]["ar"][0]
        lines.append(f"| {name} | {row['n']} | {row['chosen']} | {mase:.3g} | {ratio:.2f} | {100 * coverage:.0f} % |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] == ["--table"]:
        print(table())
        return
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        raise SystemExit("usage: python -m benchmarks.forecasts FOLDER [NAME …], with the folder of the series; or --table")
    jax.config.update("jax_compilation_cache_dir", ".cache/jax")
    RESULTS.parent.mkdir(exist_ok=True)
    there = [name for name, (file, *_) in SERIES.items() if (Path(sys.argv[1]) / file).exists()]
    for name in sys.argv[2:] or there:
        row = compare(Path(sys.argv[1]), name)
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
