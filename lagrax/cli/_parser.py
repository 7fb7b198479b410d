"""The words of a command line, and which command they are for."""

import argparse
import sys
from typing import Any, NoReturn

from .. import __version__
from .._choices import pick
from . import completion, report, reproduce
from . import list as listing

COMMANDS = {"reproduce": reproduce, "list": listing, "report": report, "completion": completion}
"""Each a module with `HELP` (a line), `declare(parser)`, which adds a description and options, and `run(given)`, which
returns the exit code."""

_EXAMPLES = """\
examples:
  lagrax list                                  what can be reproduced
  lagrax reproduce spiral                      minutes on two cores
  lagrax reproduce all --preset smoke          everything, in small
  lagrax report                                one page on the newest runs
"""


def parse(words: list[str]) -> argparse.Namespace:
    """The options given, with `run`, the command's function; raises SystemExit after help, the version or a mistake."""
    raw = argparse.RawDescriptionHelpFormatter
    about = "Neural delay differential equations: reproduce the paper."
    parser = _Parser("lagrax", description=about, epilog=_EXAMPLES, formatter_class=raw)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.HELP, formatter_class=raw)
        command.declare(own)
        own.set_defaults(run=command.run)
    if words and not words[0].startswith("-"):
        pick("command", words[0], COMMANDS)
    return parser.parse_args(words)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(f"lagrax {__version__}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, in the place of the whole usage."""
        print(f"lagrax: {message} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)
