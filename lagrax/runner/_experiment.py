"""What an experiment is, and what it is asked for."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import diffrax as dfx

from .._adjoint import AbstractAdjoint
from ._numbers import Numbers
from ._outcome import Outcome

N = TypeVar("N", bound=Numbers)


@dataclasses.dataclass(frozen=True)
class Preset(Generic[N]):
    """One size of an experiment: its numbers, how many seeds, which solver; `takes` says about how long on two cores."""

    numbers: N
    seeds: int = 1
    solver: str = "tsit5"
    tolerance: float = 1e-6
    takes: str = "seconds"


@dataclasses.dataclass(frozen=True)
class Settings(Generic[N]):
    """What `run` gets: the preset with the user's options applied, and where to write.

    `tolerance` is meant as rtol and atol. With `resume`, `folder` holds what an interrupted run left there. Without
    `progress` nothing is to be printed.
    """

    preset: str
    seeds: int
    numbers: N
    adjoint: AbstractAdjoint
    solver: dfx.AbstractSolver
    tolerance: float
    folder: Path
    resume: bool = False
    progress: bool = True

    @property
    def controller(self) -> dfx.PIDController:
        return dfx.PIDController(rtol=self.tolerance, atol=self.tolerance)

    @property
    def stepping(self) -> dict[str, Any]:
        """The keyword arguments of a model of `lagrax.nn` that say how it is solved."""
        return {"solver": self.solver, "stepsize_controller": self.controller}

    @property
    def solving(self) -> dict[str, Any]:
        """Those, and how it is differentiated."""
        return {**self.stepping, "adjoint": self.adjoint}

    def say(self, text: str) -> None:
        """A line of progress for the terminal."""
        if self.progress:
            print(text, flush=True)


@dataclasses.dataclass(frozen=True)
class Experiment(Generic[N]):
    """One result of the paper.

    - `name`: on the command line, `mackey-glass` for the module `mackey_glass`.
    - `title`, `about`: a headline, and one or two sentences on what is done and what the paper says of it.
    - `presets`: `smoke` (seconds), `default` (minutes on two cores) and `paper` (the paper's own numbers);
      perhaps others.
    - `run`: does it all, and writes nothing outside of `settings.folder`.
    - `x64`: whether it runs in double precision; single by default, as in the paper.
    """

    name: str
    title: str
    about: str
    presets: Mapping[str, Preset[N]]
    run: Callable[[Settings[N]], Outcome]
    x64: bool = False
