"""The process: runs one command, and ends with its exit code, whatever happens."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .._choices import UsageError, UserError
from ._parser import parse
from ._signals import INTERRUPTED, interruptible


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
        given = parse(words)
    except SystemExit as stop:  # after help or a mistake, which argparse has printed
        return int(stop.code or 0)
    return given.run(given)
