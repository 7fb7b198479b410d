"""`lagrax reproduce`: experiments of the paper, from data to report."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._choices import ADJOINTS, EXPERIMENTS, MORE_PRESETS, PRESETS, SOLVERS, UsageError, pick
from ._signals import INTERRUPTED, interruptible
from ._text import print_table, wrapped
from ._types import assignment, one_of

if TYPE_CHECKING:
    from ..runner import Options

HELP = "run experiments of the paper"
_ABOUT = """\
Runs experiments of the paper from data to report. Results are written to <out>/<experiment>/<time>/:
config.json, metrics.json, figures as PNG and PDF, and report.html, which sets them beside the paper's statements.
"""
_EXAMPLES = """\
examples:
  lagrax reproduce spiral                      half a minute on two cores
  lagrax reproduce all --preset smoke          everything, in small
  lagrax reproduce population --preset paper --seeds 5
  lagrax reproduce population --resume         go on after an interruption
  lagrax reproduce images --dataset mnist --data-dir DATA --limit-train 10000 --models NODE,NDDE
"""

_IMAGES = ("dataset", "models", "data_dir", "limit_train", "limit_test", "minutes")
"""Options of one experiment, which stand for numbers of its presets."""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _ABOUT, _EXAMPLES
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="an experiment that `lagrax list` shows, or all")
    add(
        "--preset",
        type=one_of("preset", PRESETS + MORE_PRESETS),
        metavar="P",
        help="smoke (seconds), default (minutes), reduced (images, hours), paper (its numbers)",
    )
    add("--seeds", type=int, metavar="N", help="how many random seeds (preset's own)")
    add("--out", type=Path, default=Path("runs"), metavar="FOLDER", help="where results go (runs)")
    add("--resume", nargs="?", const="", metavar="RUN", help="continue the newest unfinished run, or the one in folder RUN")
    add("--adjoint", type=one_of("adjoint", ADJOINTS), metavar="A", help=f"{', '.join(ADJOINTS)} (discrete)")
    add("--solver", type=one_of("solver", SOLVERS), metavar="S", help=f"{', '.join(SOLVERS)} (preset's own)")
    add("--tolerance", type=float, metavar="X", help="relative and absolute, of every solve (preset's own)")
    add("--set", dest="numbers", action="append", type=assignment, default=[], metavar="NAME=VALUE",
        help="replace a number that `lagrax list NAME` shows; may be repeated")  # fmt: skip
    _declare_images(parser)


def _declare_images(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("images").add_argument
    add("--dataset", metavar="D", help="digits, mnist, cifar10, svhn, or several with commas (digits)")
    add("--models", metavar="M", help="all, or names of the paper's table such as NODE,A1+NDDE (all)")
    add("--data-dir", metavar="FOLDER", help="where the publisher's files are; else $LAGRAX_DATA, else downloaded")
    add("--limit-train", type=int, metavar="N", help="train with the first N images")
    add("--limit-test", type=int, metavar="N", help="test with the first N images")
    add("--minutes", type=float, metavar="T", help="stop after so long, shared by the models, and report what there is")
    add("--table", metavar="T", help="print a table of the paper and nothing else: parameters")
    group = parser.add_argument_group("several machines (images), the same command on each")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="of the first process, where the others find it")
    group.add_argument("--processes", type=int, metavar="N", help="how many there are")
    group.add_argument("--process", type=int, metavar="I", help="which one this is, from 0")


def run(given: argparse.Namespace) -> int:
    for name in given.names:
        pick("experiment", name, (*EXPERIMENTS, "all"))
    if not given.names and not given.resume:
        raise UsageError(f"which experiment? Name one or more of {', '.join(EXPERIMENTS)}, or all")
    from .. import experiments, runner

    if given.table:
        return _print_table(given)
    runner.join(given.coordinator, given.processes, given.process)
    names, folders = runner.plan(given.names, given.resume, given.out)
    options = {name: _options(name, given, names) for name in names}
    chosen = [experiments.load(name) for name in names]
    runner.check(chosen, folders, options)
    done: list[Path] = []
    for position, experiment in enumerate(chosen):
        if len(chosen) > 1:
            print(f"\n{experiment.name} ({position + 1} of {len(chosen)}): {experiment.title}", flush=True)
        folder = folders.get(experiment.name)
        begin = runner.start if folder is None else runner.resume
        message = _how_to_resume(names[position:], given)
        try:
            with interruptible(message):
                found = begin(experiment, given.out if folder is None else folder, options[experiment.name])
        except KeyboardInterrupt:  # training has ended in good order
            print(f"\nlagrax: {message}", file=sys.stderr)
            return 130
        if found is None:
            continue  # the first process has it
        done.append(found)
        _print_outcome(found)
    if len(done) > 1:
        print(f"\nAll of them: {runner.joint_report(done, given.out)}")
    return 0


def _options(name: str, given: argparse.Namespace, names: Sequence[str]) -> "Options":
    """What was asked of one of the experiments: those of images are for images alone."""
    from ..runner import Options

    own = {option: getattr(given, option) for option in _IMAGES if getattr(given, option) is not None}
    if own and "images" not in names:
        option = next(iter(own)).replace("_", "-")
        raise UsageError(f"--{option} is an option of images, which is not among the experiments to run: leave it out")
    numbers = dict(given.numbers)
    if name == "images":
        numbers |= {option: str(value) for option, value in own.items()}
    return Options(given.preset, given.seeds, given.adjoint, given.solver, given.tolerance, numbers)


def _print_table(given: argparse.Namespace) -> int:
    from ..experiments.images import parameters_table

    pick("table", given.table, ("parameters",))
    if given.names != ["images"]:
        raise UsageError(f"--table {given.table} is an option of images: lagrax reproduce images --table {given.table}")
    print_table(parameters_table())
    return 0


def _how_to_resume(names: Sequence[str], given: argparse.Namespace) -> str:
    words = ["lagrax", "reproduce", *names, "--resume"]
    single = ("preset", "seeds", "adjoint", "solver", "tolerance", "out", *_IMAGES)
    defaults = {"out": Path("runs")}
    for option in single:
        value = getattr(given, option)
        if value is not None and value != defaults.get(option):
            words += [f"--{option.replace('_', '-')}", str(value)]
    for name, value in given.numbers:
        words += ["--set", f"{name}={value}"]
    return f"{INTERRUPTED}; what was saved is kept. To go on: {shlex.join(words)}"


def _print_outcome(folder: Path) -> None:
    from .. import runner

    outcome, duration = runner.read_outcome(folder)
    for table in outcome.tables:
        print()
        print_table(table)
    for claim in outcome.claims:
        print(f"\n{claim.verdict}")
        print(wrapped(f"the paper says: {claim.paper}", "  "))
        print(wrapped(f"we measured:    {claim.measured}", "  "))
    if command := outcome.comparable_by(folder.parent.name):
        print(wrapped(f"Not comparable: a run of this size is too small for a verdict, `{command}` gives one.", ""))
    print(f"\nReport, after {duration}: {folder / runner.REPORT}", flush=True)
