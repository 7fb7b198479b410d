"""`lagrax report`: one page on several runs."""

import argparse
from pathlib import Path

HELP = "one page on several runs"


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Writes a report on finished runs."
    newest = "runs, or folders that hold some, of which the newest of each experiment are taken (runs)"
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help=newest)
    parser.add_argument("--to", type=Path, metavar="FILE", help="where to write it (report.html beside what it is about)")


def run(given: argparse.Namespace) -> int:
    from ..runner import report

    print(report(given.paths or [Path("runs")], given.to))
    return 0
