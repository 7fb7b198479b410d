"""From what the user typed, or an interrupted run left behind, to a run's configuration."""

import dataclasses
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffrax as dfx

from .. import _choices
from .._adjoint import ContinuousAdjoint, DiscreteAdjoint, PiecewiseAdjoint
from .._choices import UsageError, UserError, pick
from ._experiment import Experiment, Numbers, Settings, shown

ADJOINTS = dict(zip(_choices.ADJOINTS, (DiscreteAdjoint, ContinuousAdjoint, PiecewiseAdjoint), strict=True))
SOLVERS = {name: getattr(dfx, name.capitalize()) for name in _choices.SOLVERS}
_MOST_SEEDS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for; None where they left it to the preset. `numbers` maps names to JSON text."""

    preset: str | None = None
    seeds: int | None = None
    adjoint: str | None = None
    solver: str | None = None
    tolerance: float | None = None
    numbers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """All that decides what a run computes. Every instance is one that the experiment can serve."""

    experiment: Experiment
    preset: str
    seeds: int
    adjoint: str
    solver: str
    tolerance: float
    numbers: Numbers

    def __post_init__(self) -> None:
        pick(f"preset of {self.experiment.name} called", self.preset, self.experiment.presets)
        pick("adjoint", self.adjoint, ADJOINTS)
        pick("solver", self.solver, SOLVERS)
        if type(self.seeds) is not int or not 1 <= self.seeds <= _MOST_SEEDS:
            raise UsageError(f"seeds = {self.seeds}, expected at least 1 and at most {_MOST_SEEDS}")
        _check_tolerance(self.tolerance, self.experiment)
        self.numbers.check_installed()

    def to_json(self) -> dict[str, Any]:
        """What stands in config.json."""
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "about": self.experiment.about,
            "preset": self.preset,
            "seeds": self.seeds,
            "adjoint": self.adjoint,
            "solver": self.solver,
            "tolerance": self.tolerance,
            "numbers": self.numbers.to_json(),
            "command": self.command(),
        }

    def command(self) -> str:
        """What to type for this configuration."""
        preset = self.experiment.presets[self.preset]
        words = ["lagrax", "reproduce", self.experiment.name]
        words += ["--preset", self.preset] if self.preset != "default" else []
        words += ["--adjoint", self.adjoint] if self.adjoint != "discrete" else []
        for name in ("seeds", "solver", "tolerance"):
            words += [f"--{name}", str(getattr(self, name))] if getattr(self, name) != getattr(preset, name) else []
        for name, value in vars(self.numbers).items():
            words += ["--set", f"{name}={shown(value)}"] if value != getattr(preset.numbers, name) else []
        return shlex.join(words)

    def settings(self, folder: Path, resume: bool, progress: bool) -> Settings:
        return Settings(
            preset=self.preset,
            seeds=self.seeds,
            numbers=self.numbers,
            adjoint=ADJOINTS[self.adjoint](),
            solver=SOLVERS[self.solver](),
            tolerance=self.tolerance,
            folder=folder,
            resume=resume,
            progress=progress,
        )

    def check_same(self, options: Options) -> None:
        """Raises if an option contradicts this configuration, of a run that is to be continued."""
        given = {key: value for key, value in dataclasses.asdict(options).items() if value is not None and key != "numbers"}
        wanted = vars(self.numbers.changed(options.numbers, self.experiment.name))
        pairs = {key: (getattr(self, key), value) for key, value in given.items()}
        pairs |= {key: (getattr(self.numbers, key), value) for key, value in wanted.items()}
        for key, (known, value) in pairs.items():
            if known != value:
                raise UserError(
                    f"the run to be resumed has {key} = {known}, not {value}: leave the option out, or start anew without "
                    "--resume"
                )


def configure(experiment: Experiment, options: Options) -> Configuration:
    """The preset, with the options in the place of its values."""
    name = pick(f"preset of {experiment.name} called", options.preset or "default", experiment.presets)
    preset = experiment.presets[name]
    choose = lambda given, otherwise: otherwise if given is None else given
    return Configuration(
        experiment=experiment,
        preset=name,
        seeds=choose(options.seeds, preset.seeds),
        adjoint=options.adjoint or "discrete",
        solver=options.solver or preset.solver,
        tolerance=choose(options.tolerance, preset.tolerance),
        numbers=preset.numbers.changed(options.numbers, experiment.name),
    )


def from_json(experiment: Experiment, saved: Mapping[str, Any]) -> Configuration:
    """The configuration that `to_json` made. Raises for one that could not have been started."""
    preset = experiment.presets[pick(f"preset of {experiment.name} called", saved["preset"], experiment.presets)]
    same = ("preset", "seeds", "adjoint", "solver", "tolerance")
    numbers = type(preset.numbers).from_json(saved["numbers"])
    return Configuration(experiment=experiment, numbers=numbers, **{key: saved[key] for key in same})


def _check_tolerance(tolerance: float, experiment: Experiment) -> None:
    # Below this, rounding is larger than the error allowed, and the steps shrink to nothing.
    smallest = 1e-13 if experiment.x64 else 1e-7
    if not (math.isfinite(tolerance) and smallest <= tolerance < 1):
        precision = "double" if experiment.x64 else "single"
        raise UsageError(
            f"tolerance = {tolerance:g}, expected at least {smallest:g} and less than 1, which is what "
            f"{experiment.name} can reach in {precision} precision"
        )
