"""`lagrax list`: what can be reproduced, how long it takes, and the numbers that can be set."""

import argparse
from typing import TYPE_CHECKING

from .._choices import EXPERIMENTS, pick
from ._text import print_table, wrapped

if TYPE_CHECKING:
    from ..runner import Experiment

HELP = "what can be reproduced, and how long it takes"


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = "Describes the experiments; with names, also their numbers in each preset."
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments whose numbers are to be shown")


def run(given: argparse.Namespace) -> int:
    for name in given.names:
        pick("experiment", name, EXPERIMENTS)
    from .. import experiments

    for name in given.names or EXPERIMENTS:
        experiment = experiments.load(name)
        _describe(experiment)
        if given.names:
            print()
            _print_numbers(experiment)
            print()
    if not given.names:
        print("\nTimes are about those of two cores. `lagrax list NAME` shows the numbers that `--set` changes.")
    return 0


def _describe(experiment: "Experiment") -> None:
    width = max(map(len, EXPERIMENTS)) + 2
    print(f"{experiment.name:<{width}}{experiment.title}")
    print(wrapped(experiment.about, " " * width))
    print(wrapped(", ".join(f"{name}: {preset.takes}" for name, preset in experiment.presets.items()), " " * width))


def _print_numbers(experiment: "Experiment") -> None:
    from ..runner import Table, shown

    presets = experiment.presets
    rows = [
        (name, *(shown(getattr(preset.numbers, name)) for preset in presets.values()), limits.about)
        for name, limits in next(iter(presets.values())).numbers.limits().items()
    ]
    others = {"--seeds": "seeds", "--solver": "solver", "--tolerance": "tolerance"}
    rows += [(flag, *(str(getattr(preset, name)) for preset in presets.values()), "") for flag, name in others.items()]
    print_table(Table("", ("number", *presets, "what it is"), rows))
