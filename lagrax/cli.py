"""The command `lagrax`: parses arguments, prints; what it does is in `lagrax.experiments`.

That package needs JAX, which takes a second or more to import: it is imported where something is to be computed, and not
for help, the version or a mistyped command.
"""

import argparse
import os
import shlex
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ._choices import ADJOINTS, EXPERIMENTS, MORE_PRESETS, PRESETS, SOLVERS, UserError, pick

if TYPE_CHECKING:
    from .experiments import Options
    from .experiments._base import Table

_EXAMPLES = """\
examples:
  lagrax list                                  what can be reproduced
  lagrax reproduce spiral                      minutes on two cores
  lagrax reproduce all --preset smoke          everything, in small
  lagrax reproduce population --preset paper --seeds 5
  lagrax reproduce population --resume         go on after an interruption
  lagrax reproduce images --dataset mnist --data-dir DATA --limit-train 10000 --models NODE,NDDE
  lagrax report                                one page on the newest runs
"""
_REPRODUCE = """\
Runs experiments of the paper from data to report. Results are written to <out>/<experiment>/<time>/:
config.json, metrics.json, figures as PNG and PDF, and report.html, which sets them beside the paper's statements.
"""
_INTERRUPTED = "interrupted"


# Options of one experiment, and the numbers of its presets that they stand for.
_IMAGES = {
    "dataset": "dataset", "models": "models", "data_dir": "data dir", "limit_train": "limit train",
    "limit_test": "limit test", "minutes": "minutes",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Exit codes: 0, 1 for an error, 2 for a wrong command line, 130 for Ctrl-C or SIGTERM."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _interruptible(_INTERRUPTED):
            code = _run(words)
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except UserError as error:
        print(f"lagrax: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"lagrax: {error.filename or 'the output'} cannot be read or written ({error.strerror})", file=sys.stderr)
        if error.filename is None:  # Python is kept from trying it once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(f"\nlagrax: {_INTERRUPTED}", file=sys.stderr)
        return 130


def command() -> NoReturn:
    """The process: `main`, and the end of it. After an interruption nothing is waited for, see `_interruptible`."""
    code = main()
    if code == 130:
        os._exit(code)
    sys.exit(code)


def _run(words: list[str]) -> int:
    try:
        options = _parse(words)
    except SystemExit as stop:  # after help or a mistake, which argparse has printed
        return int(stop.code or 0)
    return options.command(options)


@contextmanager
def _interruptible(message: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the process here and now, with a message.

    An exception might be lost in a callback of JAX, and would not stop what JAX compiles in a thread of its own: Python
    waits for that when it ends, for minutes perhaps, and has crashed then. Nothing else is lost, because files are replaced
    as a whole, and training, which has something to save, listens to these signals itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def stop(*_: Any) -> None:
        with suppress(Exception):
            sys.stdout.flush()
        with suppress(OSError):
            os.write(2, f"\nlagrax: {message}\n".encode())
        os._exit(130)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)


def _reproduce(given: argparse.Namespace) -> int:
    for name in given.names:
        pick("experiment", name, (*EXPERIMENTS, "all"))
    if not given.names and not given.resume:
        raise UserError(f"which experiment? Name one or more of {', '.join(EXPERIMENTS)}, or all")
    from . import experiments
    from .experiments import _collect, _processes

    if given.table:
        return _print_table(given)
    _processes.join(given.coordinator, given.processes, given.process)
    names, folders = _collect.plan(given.names, given.resume, given.out)
    options = {name: _options(name, given, names) for name in names}
    chosen = [experiments.load(name) for name in names]
    _collect.check(chosen, folders, options)
    done: list[Path] = []
    for position, experiment in enumerate(chosen):
        if len(chosen) > 1:
            print(f"\n{experiment.name} ({position + 1} of {len(chosen)}): {experiment.title}", flush=True)
        folder = folders.get(experiment.name)
        run = experiments.start if folder is None else experiments.resume
        message = _how_to_resume(names[position:], given)
        try:
            with _interruptible(message):
                found = run(experiment, given.out if folder is None else folder, options[experiment.name])
        except KeyboardInterrupt:  # training has ended in good order
            print(f"\nlagrax: {message}", file=sys.stderr)
            return 130
        if found is None:
            continue  # the first process has it
        done.append(found)
        _print_outcome(found)
    if not done:
        return 0
    report = _collect.joint_report(done, given.out)
    print(f"\nReport: {report}")
    return 0


def _options(name: str, given: argparse.Namespace, names: Sequence[str]) -> "Options":
    """What was asked of one of the experiments: those of images are for images alone."""
    from .experiments import Options

    own = {option: getattr(given, option) for option in _IMAGES if getattr(given, option) is not None}
    if own and "images" not in names:
        option = next(iter(own)).replace("_", "-")
        raise UserError(f"--{option} is an option of images, which is not among the experiments to run: leave it out")
    numbers = dict(given.numbers)
    if name == "images":
        numbers |= {_IMAGES[option]: str(value) for option, value in own.items()}
    return Options(given.preset, given.seeds, given.adjoint, given.solver, given.tolerance, numbers)


def _print_table(given: argparse.Namespace) -> int:
    from .experiments import _image_models

    pick("table", given.table, ("parameters",))
    if given.names != ["images"]:
        raise UserError(f"--table {given.table} is an option of images: lagrax reproduce images --table {given.table}")
    _print_rows(_image_models.parameters_table())
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
    return f"{_INTERRUPTED}; what was saved is kept. To go on: {shlex.join(words)}"


def _list(given: argparse.Namespace) -> int:
    from . import experiments

    width = max(map(len, EXPERIMENTS)) + 2
    for name in EXPERIMENTS:
        experiment = experiments.load(name)
        print(f"{name:<{width}}{experiment.title}")
        print(_wrapped(experiment.about, " " * width))
    return 0


def _report(given: argparse.Namespace) -> int:
    from .experiments import _collect

    print(_collect.report(given.paths or [Path("runs")], given.to))
    return 0


def _print_outcome(folder: Path) -> None:
    from .experiments._folder import read_outcome
    from .experiments._report import verdict

    outcome, duration = read_outcome(folder)
    for table in outcome.tables:
        print()
        _print_rows(table)
    for claim in outcome.claims:
        print(f"\n{verdict(claim)}")
        print(_wrapped(f"the paper says: {claim.paper}", "  "))
        print(_wrapped(f"we measured:    {claim.measured}", "  "))
    print(f"\n{folder} ({duration})", flush=True)


def _print_rows(table: "Table") -> None:
    print(table.title)
    rows = [table.columns, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _wrapped(text: str, indent: str) -> str:
    width = min(shutil.get_terminal_size((110, 24)).columns, 120)
    return textwrap.fill(text, max(width, 40), initial_indent=indent, subsequent_indent=indent)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"lagrax {version('lagrax')}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, in the place of the whole usage."""
        print(f"lagrax: {message} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def _parse(words: list[str]) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser("lagrax", description="Neural delay differential equations: reproduce the paper.", epilog=_EXAMPLES,
                     formatter_class=raw)  # fmt: skip
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    reproduce = commands.add_parser("reproduce", help="run experiments of the paper", description=_REPRODUCE,
                                    epilog=_EXAMPLES, formatter_class=raw)  # fmt: skip
    add = reproduce.add_argument
    add("names", nargs="*", metavar="NAME", help="an experiment that `lagrax list` shows, or all")
    add(
        "--preset",
        type=_one_of("preset", PRESETS + MORE_PRESETS),
        metavar="P",
        help="smoke (seconds), default (minutes), reduced (images, hours), paper (its numbers)",
    )
    add("--seeds", type=int, metavar="N", help="how many random seeds (preset's own)")
    add("--out", type=Path, default=Path("runs"), metavar="FOLDER", help="where results go (runs)")
    add("--resume", nargs="?", const="", metavar="RUN", help="continue the newest unfinished run, or the one in folder RUN")
    add("--adjoint", type=_one_of("adjoint", ADJOINTS), metavar="A", help=f"{', '.join(ADJOINTS)} (discrete)")
    add("--solver", type=_one_of("solver", SOLVERS), metavar="S", help=f"{', '.join(SOLVERS)} (preset's own)")
    add("--tolerance", type=float, metavar="X", help="relative and absolute, of every solve (preset's own)")
    add("--set", dest="numbers", action="append", type=_assignment, default=[], metavar="NAME=VALUE",
        help="replace a number of the preset, see config.json; may be repeated")  # fmt: skip
    _add_images(reproduce)
    reproduce.set_defaults(command=_reproduce)

    listing = commands.add_parser("list", help="what can be reproduced", description="Names and describes the experiments.")
    listing.set_defaults(command=_list)

    report = commands.add_parser("report", help="one page on several runs", description="Writes a report on finished runs.")
    newest = "runs, or folders that hold some, of which the newest of each experiment are taken (runs)"
    report.add_argument("paths", nargs="*", type=Path, metavar="PATH", help=newest)
    report.add_argument("--to", type=Path, metavar="FILE", help="where to write it (report.html beside what it is about)")
    report.set_defaults(command=_report)

    if words and not words[0].startswith("-"):
        pick("command", words[0], ("reproduce", "list", "report"))
    return parser.parse_args(words)


def _add_images(reproduce: argparse.ArgumentParser) -> None:
    add = reproduce.add_argument_group("images").add_argument
    add("--dataset", metavar="D", help="digits, mnist, cifar10, svhn, or several with commas (digits)")
    add("--models", metavar="M", help="all, or names of the paper's table such as NODE,A1+NDDE (all)")
    add("--data-dir", metavar="FOLDER", help="where the publisher's files are; else $LAGRAX_DATA, else downloaded")
    add("--limit-train", type=int, metavar="N", help="train with the first N images")
    add("--limit-test", type=int, metavar="N", help="test with the first N images")
    add("--minutes", type=float, metavar="T", help="stop after so long, shared by the models, and report what there is")
    add("--table", metavar="T", help="print a table of the paper and nothing else: parameters")
    group = reproduce.add_argument_group("several machines (images), the same command on each")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="of the first process, where the others find it")
    group.add_argument("--processes", type=int, metavar="N", help="how many there are")
    group.add_argument("--process", type=int, metavar="I", help="which one this is, from 0")


def _one_of(what: str, names: Sequence[str]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        try:
            return pick(what, text, names)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected NAME=VALUE such as iterations=100")
    return name, value
