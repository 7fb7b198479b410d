"""Types of options: a word that must be one of several, and NAME=VALUE."""

import argparse
from collections.abc import Callable, Sequence

from .._choices import UserError, pick


def one_of(what: str, names: Sequence[str]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        try:
            return pick(what, text, names)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected NAME=VALUE such as iterations=100")
    return name, value
