"""From what the user typed to a run's configuration, and from there to the `Settings` of an experiment."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffrax as dfx

from .. import _choices
from .._adjoint import ContinuousAdjoint, DiscreteAdjoint, PiecewiseAdjoint
from .._choices import PRESETS as PRESETS
from .._choices import pick as pick
from ._base import Experiment, Settings, UserError

ADJOINTS = dict(zip(_choices.ADJOINTS, (DiscreteAdjoint, ContinuousAdjoint, PiecewiseAdjoint), strict=True))
_LARGEST = 2**31 - 1  # which compiled loops count up to
SOLVERS = {name: getattr(dfx, name.capitalize()) for name in _choices.SOLVERS}


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for; None where they left it to the preset. `numbers` maps names to JSON text."""

    preset: str | None = None
    seeds: int | None = None
    adjoint: str | None = None
    solver: str | None = None
    tolerance: float | None = None
    numbers: Mapping[str, str] = dataclasses.field(default_factory=dict)


def configure(experiment: Experiment, options: Options) -> dict[str, Any]:
    """A run's configuration as JSON values: the preset, with the options in the place of its values."""
    preset_name = pick(f"preset of {experiment.name} called", options.preset or "default", experiment.presets)
    preset = experiment.presets[preset_name]
    choose = lambda given, otherwise: otherwise if given is None else given
    config = {
        "experiment": experiment.name,
        "title": experiment.title,
        "about": experiment.about,
        "preset": preset_name,
        "seeds": choose(options.seeds, preset.seeds),
        "adjoint": pick("adjoint", options.adjoint or "discrete", ADJOINTS),
        "solver": pick("solver", options.solver or preset.solver, SOLVERS),
        "tolerance": choose(options.tolerance, preset.tolerance),
        "numbers": {**preset.numbers, **_numbers(experiment.name, preset.numbers, options.numbers)},
    }
    check(config, experiment)
    return config


def same(config: Mapping[str, Any], experiment: Experiment, options: Options) -> None:
    """Raises if an option contradicts the configuration of the run that is to be continued."""
    given = {key: value for key, value in dataclasses.asdict(options).items() if value is not None and key != "numbers"}
    given |= _numbers(experiment.name, config["numbers"], options.numbers)
    known = {**config, **config["numbers"]}
    for key, value in given.items():
        if known[key] != value:
            raise UserError(
                f"the run to be resumed has {key} = {known[key]}, not {value}: leave the option out, or start anew "
                "without --resume"
            )


def settings(config: Mapping[str, Any], folder: Path, resume: bool, progress: bool) -> Settings:
    return Settings(
        preset=config["preset"],
        seeds=config["seeds"],
        numbers=config["numbers"],
        adjoint_name=config["adjoint"],
        adjoint=ADJOINTS[config["adjoint"]](),
        solver_name=config["solver"],
        solver=SOLVERS[config["solver"]](),
        tolerance=config["tolerance"],
        folder=folder,
        resume=resume,
        progress=progress,
    )


def _numbers(experiment: str, known: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The numbers given as text, each of the type that the preset has for it."""
    numbers = {}
    for name, text in given.items():
        if name not in known:
            pick(f"number of {experiment} called", name, list(known) or ["none"])
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if isinstance(known[name], float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < 1e300 else math.inf
        _check_kind(name, text, value, known[name])
        numbers[name] = value
    return numbers


def _check_kind(name: str, text: str, value: Any, known: Any) -> None:
    alike = type(value) is type(known)
    if alike and isinstance(known, list):
        alike = bool(value) and all(type(item) is type(known[0]) for item in value)
    if not alike:
        raise UserError(f"{name} = {text} is not of the kind it has in the presets, such as {known!r}")


def check(config: Mapping[str, Any], experiment: Experiment) -> None:
    """Raises for a configuration that the experiment cannot serve, before anything is written."""
    preset = experiment.presets[pick("preset", config["preset"], experiment.presets)]
    pick("adjoint", config["adjoint"], ADJOINTS)
    pick("solver", config["solver"], SOLVERS)
    _check_kind("seeds", str(config["seeds"]), config["seeds"], preset.seeds)
    if not 1 <= config["seeds"] <= _LARGEST:
        raise UserError(f"seeds = {config['seeds']}, expected at least 1 and at most {_LARGEST}")
    _check_tolerance(config["tolerance"], experiment)
    numbers = config["numbers"]
    if set(numbers) != set(preset.numbers):
        raise UserError(f"its numbers are {', '.join(numbers)}, expected {', '.join(preset.numbers)}")
    for name, value in numbers.items():
        _check_kind(name, str(value), value, preset.numbers[name])
        for item in value if isinstance(value, list) else [value]:
            _check_range(name, item, experiment)
    experiment.check(numbers)


def _check_range(name: str, value: Any, experiment: Experiment) -> None:
    if isinstance(value, bool | str):
        return
    smallest, largest = experiment.limits.get(name, (0, _LARGEST))
    # Zero itself is for what a preset does without, such as `limit train`.
    zero = smallest > 0 or any(preset.numbers[name] == 0 for preset in experiment.presets.values())
    if not (smallest <= value <= largest and (zero or value > 0)):
        least = f"at least {smallest}" if zero else "at least 1" if isinstance(value, int) else "more than 0"
        raise UserError(f"{name} = {value}, expected {least} and at most {largest}")


def _check_tolerance(tolerance: float, experiment: Experiment) -> None:
    # Below this, rounding is larger than the error allowed, and the steps shrink to nothing.
    smallest = 1e-13 if experiment.x64 else 1e-7
    if not (math.isfinite(tolerance) and smallest <= tolerance < 1):
        precision = "double" if experiment.x64 else "single"
        raise UserError(
            f"tolerance = {tolerance:g}, expected at least {smallest:g} and less than 1, which is what "
            f"{experiment.name} can reach in {precision} precision"
        )
