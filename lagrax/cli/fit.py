"""`lagrax fit`: from a table with an unknown delay to an estimate, a forecast and a report."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .._choices import MODELS, TRANSFORMS, UserError, pick
from ._signals import INTERRUPTED, interruptible
from ._text import wrapped
from ._types import assignment, bounds, count, delays, one_of, positive, share, start

if TYPE_CHECKING:
    from ..fitting._request import Request
    from ..series import SeriesFit

HELP = "fit a delay equation to a table, and forecast"
_ABOUT = """\
Fits a delay equation to a time series in a CSV or Parquet file: a known mechanism, a field of your own, or a neural one.
Says which delays are identified and which are aliases, forecasts, and compares the forecasts with plain baselines on a
part of the record that was held out. Writes report.html, fit.json, forecast.csv, figures and the model into a folder.
"""
_EXAMPLES = """\
examples:
  lagrax fit flies.csv --time day --value count --where set=4 --model nicholson
  lagrax fit measles.csv --time time --value cases --input births --season 26 --horizon 26
  lagrax fit sst.csv --time year,month --value sst --season 12
  lagrax fit laser.csv --value intensity                          samples 1 apart
  lagrax fit data.csv --time t --value x --model my_model.py:field
  lagrax fit --resume                                             go on after an interruption
"""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _ABOUT, _EXAMPLES
    parser.add_argument("data", nargs="?", metavar="FILE", help="CSV with any usual separator and decimal mark, or Parquet")
    _declare_table(parser.add_argument_group("the table"))
    _declare_model(parser.add_argument_group("the model"))
    _declare_forecast(parser.add_argument_group("the forecast, and how long it may take"))
    add = parser.add_argument_group("the run").add_argument
    add("--out", type=Path, metavar="FOLDER", help="where results go (a new folder in runs/fit)")
    add(
        "--resume", nargs="?", const="", metavar="RUN", help="go on with the newest unfinished fit, or the one in folder RUN"
    )


def _declare_table(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--value", action="append", default=[], metavar="COLUMN", help="what to fit; several for a system: repeat, or a,b")
    add("--time", metavar="COLUMN", help="numbers or dates; year,month[,day] if in several columns (none: samples 1 apart)")
    add("--where", action="append", default=[], metavar="CONDITION", help="rows such as set=4, 'set!=4', 'day<100'; repeat")
    add("--group", metavar="COLUMN", help="several series in one file, told apart by this column, fitted together")
    add(
        "--input", action="append", default=[], metavar="COLUMN", help="known from outside, as temperature or births; repeat"
    )
    add("--step", type=positive, default=1.0, metavar="X", help="time between samples, without --time (1)")
    add("--unit", metavar="WORD", help="of time, for labels, where the file does not say: days")
    add("--date-format", metavar="F", help="such as '%%d.%%m.%%Y', where day and month cannot be told apart")
    add("--decimal", choices=(".", ","), help="the decimal mark, where it cannot be told")
    add("--missing", metavar="WORD", help="one more spelling of a missing value, such as -9999")


def _declare_model(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--model", metavar="M", help=f"{', '.join(MODELS)}, or file.py:field (neural)")
    add("--param", action="append", type=assignment, default=[], metavar="NAME=START",
        help="where a parameter starts, or START:LOW:HIGH; repeat")  # fmt: skip
    add("--delays", type=delays, metavar="N", help="how many delays: 1 to 5, or auto")
    add("--delay-bounds", type=bounds, metavar="A:B", help="where to look for delays, in units of time")
    add("--transform", type=one_of("transform", TRANSFORMS), metavar="T", help=f"{', '.join(TRANSFORMS)} (auto)")


def _declare_forecast(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--season", type=count, metavar="N", help="samples in a season, such as 12 for months")
    add("--horizon", type=count, metavar="N", help="how many samples to forecast")
    add("--holdout", type=share, metavar="X", help="the last part of the record, kept from the fit to judge it (0.25)")
    add("--seeds", type=count, metavar="N", help="members of a neural model's ensemble (5)")
    add("--minutes", type=positive, metavar="T", help="stop training after so long, and report what there is")


def run(given: argparse.Namespace) -> int:
    if given.data is None and given.resume is None:
        raise UserError("which file? Name one: lagrax fit data.csv --time day --value count")
    if given.data is not None and not Path(given.data).is_file():
        what = "is a folder" if Path(given.data).is_dir() else "does not exist"
        raise UserError(f"{given.data} {what}, expected a CSV or Parquet file")
    if given.model is not None and ".py" not in given.model:
        pick("model", given.model, MODELS)
    from ..fitting import _folder, _run

    request = _request(given)
    if given.resume is None:
        prepared = _run.prepare(request, given.out, shlex.join(["lagrax", *sys.argv[1:]]))
    else:
        prepared = _run.reopen(_folder.unfinished(given.resume, given.out), request)
    again = shlex.join(["lagrax", "fit", "--resume", str(prepared.folder)])
    message = lambda: f"{INTERRUPTED}; {_run.leave(prepared)}. To go on: {again}"
    try:
        with interruptible(message):
            fit = _run.complete(prepared)
    except KeyboardInterrupt:
        print(f"\nlagrax: {message()}", file=sys.stderr)
        return 130
    _print_outcome(prepared.folder, fit)
    return 0


def _request(given: argparse.Namespace) -> "Request":
    from ..fitting._request import Request
    from ..tables import Choice

    choice = Choice(
        value=_names(given.value),
        time=given.time,
        inputs=_names(given.input),
        where=tuple(given.where),
        group=given.group,
        step=given.step,
        unit=given.unit,
        date_format=given.date_format,
    )
    names = ("model", "delays", "delay_bounds", "transform", "season", "horizon", "holdout", "seeds", "minutes")
    settings = {name: getattr(given, name) for name in names}
    params = {name: start(name, text) for name, text in given.param}
    return Request(given.data or "", choice, given.decimal, given.missing, params=params, **settings)


def _names(given: list[str]) -> tuple[str, ...]:
    """Columns, each an option of its own or several between commas."""
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


def _print_outcome(folder: Path, fit: "SeriesFit") -> None:
    from ..fitting import _words

    print(wrapped(_words.headline(fit), ""))
    for sentence in _words.delays(fit):
        print(wrapped(sentence, ""))
    for note in fit.notes:
        print(wrapped(note, "  "))
    print(f"\nForecast: {folder / 'forecast.csv'}\nNumbers:  {folder / 'fit.json'}\nReport:   {folder / 'report.html'}")
