"""Types of options: a word that must be one of several, NAME=VALUE, numbers with limits, bounds, starts."""

import argparse
import math
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


def start(name: str, text: str) -> float | list[float]:
    """A start, or START:LOW:HIGH, as a JSON value."""
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3):
        raise UserError(f"--param {name}={text}, expected NAME=START or NAME=START:LOW:HIGH, such as r=1.5 or r=1.5:0:10")
    return numbers[0] if len(numbers) == 1 else numbers


def delays(text: str) -> int | str:
    if text in ("auto", "1..5"):
        return "auto"
    if text.isdecimal() and 1 <= int(text) <= 5:
        return int(text)
    raise argparse.ArgumentTypeError(f"got {text!r}, expected auto, or how many there are, from 1 to 5")


def bounds(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        low = high = math.nan
    if not 0 <= low < high < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected LOW:HIGH in units of time, such as 2:28")
    return low, high


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from 1")
    return int(text)


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number above 0")
    return value


def share(text: str) -> float:
    value = positive(text)
    if value >= 0.9:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a share of the record such as 0.25")
    return value
