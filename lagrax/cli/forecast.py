"""`lagrax forecast`: further into the future, by a model that was fitted."""

import argparse
from pathlib import Path

from .._choices import UserError
from ._types import count, one_of

HELP = "forecast further with a fit that is finished"
_EXAMPLES = """\
examples:
  lagrax forecast runs/fit/2026-01-01_12-00-00 --horizon 50
  lagrax forecast --horizon 50 --method ar         by the newest fit in runs/fit, with its autoregression
"""
METHODS = ("model", "ar", "seasonal_naive", "naive")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Forecasts from the end of the record that was fitted: quantiles as CSV, and a figure."
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("run_folder", nargs="?", type=Path, metavar="RUN", help="the folder of a finished fit (the newest in runs/fit)")
    add("--horizon", type=count, required=True, metavar="N", help="how many samples to forecast")
    add("--method", type=one_of("method", METHODS), metavar="M", help=f"{', '.join(METHODS)} (the one that the fit chose)")
    add("--to", type=Path, metavar="FILE", help="the CSV file to write; a figure of that name beside it (in RUN)")


def run(given: argparse.Namespace) -> int:
    folder = given.run_folder or _newest()
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder, expected that of a finished fit, such as runs/fit/…")
    from ..fitting import _run

    whose, table, figure = _run.forecast_further(folder, given.horizon, given.method, given.to)
    print(f"By {whose}, {given.horizon} sample{'s' * (given.horizon != 1)} ahead.\nForecast: {table}\nFigure:   {figure}")
    return 0


def _newest() -> Path:
    from ..fitting._folder import is_finished

    files = sorted(Path("runs/fit").glob("*/fit.json"), key=lambda file: file.stat().st_mtime)
    finished = [file for file in files if is_finished(file.parent)]
    if not finished:
        raise UserError("which fit? runs/fit holds none that is finished: name its folder")
    return finished[-1].parent
