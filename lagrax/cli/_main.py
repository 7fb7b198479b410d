"""The process: finds out which command the words are for, runs it, and ends with its exit code, whatever happens."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from .._choices import UsageError, UserError, pick
from . import completion, fit, forecast, report, reproduce
from . import list as listing
from ._signals import INTERRUPTED, interruptible

COMMANDS = {
    "fit": fit, "forecast": forecast, "reproduce": reproduce, "list": listing, "report": report, "completion": completion,
}  # fmt: skip
"""Each a module with `HELP` (a line), `declare(parser)`, which adds a description and options, and `run(given)`, which
returns the exit code."""

_EXAMPLES = """\
examples:
  lagrax fit flies.csv --time day --value count --model nicholson
  lagrax forecast runs/fit/2026-01-01_12-00-00 --horizon 50
  lagrax list                                  what can be reproduced
  lagrax reproduce spiral                      half a minute on two cores
  lagrax reproduce all --preset smoke          everything, in small
  lagrax report                                one page on the newest runs
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Exit codes: 0, 1 for an error, 2 for a wrong command line, 130 for Ctrl-C or SIGTERM."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with interruptible(INTERRUPTED):
            code = _carry_out(words)
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except UserError as error:
        print(f"lagrax: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except OSError as error:
        print(f"lagrax: {error.filename or 'the output'} cannot be read or written ({error.strerror})", file=sys.stderr)
        if error.filename is None:  # Python is kept from trying it once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(f"\nlagrax: {INTERRUPTED}", file=sys.stderr)
        return 130


def command() -> NoReturn:
    """The process: `main`, and the end of it. After an interruption nothing is waited for, see `interruptible`."""
    code = main()
    if code == 130:
        os._exit(code)
    sys.exit(code)


def _carry_out(words: list[str]) -> int:
    try:
        given = _parse(words)
    except SystemExit as stop:  # after help or a mistake, which argparse has printed
        return int(stop.code or 0)
    return given.run(given)


def _parse(words: list[str]) -> argparse.Namespace:
    """The options given, with `run`, the command's function; raises SystemExit after help, the version or a mistake."""
    about = "Delay differential equations: fit one to data, forecast, and reproduce the paper on neural ones."
    parser = _Parser("lagrax", description=about, epilog=_EXAMPLES, formatter_class=_Help)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.HELP, formatter_class=_Help)
        command.declare(own)
        own.set_defaults(run=command.run, commands=COMMANDS)
    if words and not words[0].startswith("-"):
        pick("command", words[0], COMMANDS)
    return parser.parse_args(words)


class _Help(argparse.RawDescriptionHelpFormatter):
    """With a line for each command, in one column with options."""

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        return text.partition("\n")[2] if isinstance(action, argparse._SubParsersAction) else text

    def _iter_indented_subactions(self, action: argparse.Action) -> Any:
        if isinstance(action, argparse._SubParsersAction):
            yield from action._get_subactions()


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(f"lagrax {__version__}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, in the place of the whole usage."""
        print(f"lagrax: {message} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)
