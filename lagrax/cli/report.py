"""`lagrax report`: one page on several runs."""

import argparse
from pathlib import Path

HELP = "one page on several runs"


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Writes one page on finished runs: an overview, then each, with links to all others."
    which = (
        "runs, or folders that hold some, of which the largest preset of each experiment is taken, else the newest (runs)"
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help=which)
    parser.add_argument("--to", type=Path, metavar="FILE", help="where to write it (report.html beside what it is about)")


def run(given: argparse.Namespace) -> int:
    from ..runner import report

    print(report(given.paths or [Path("runs")], given.to))
    return 0
