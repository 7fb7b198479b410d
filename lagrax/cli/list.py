"""`lagrax list`: what can be reproduced."""

import argparse

from .._choices import EXPERIMENTS
from ._text import wrapped

HELP = "what can be reproduced"


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Names and describes the experiments."


def run(given: argparse.Namespace) -> int:
    from .. import experiments

    width = max(map(len, EXPERIMENTS)) + 2
    for name in EXPERIMENTS:
        experiment = experiments.load(name)
        print(f"{name:<{width}}{experiment.title}")
        print(wrapped(experiment.about, " " * width))
    return 0
