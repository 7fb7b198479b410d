"""Several runs at once: which to start, which to continue, and a report on all of them."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._choices import EXPERIMENTS, UserError, pick
from . import _folder, _report
from ._configuration import Options, configure
from ._execute import continuation, read_config
from ._experiment import Experiment

_SIZES = ("smoke", "default", "reduced", "paper")


def plan(given: Sequence[str], resume: str | None, out: Path) -> tuple[list[str], dict[str, Path]]:
    """The experiments to run, and the folders of those that continue an unfinished run.

    `resume` is None, a run's folder, or "" for the newest unfinished run of each experiment; experiments without one
    start anew, but at least one must have it.
    """
    if resume in EXPERIMENTS or resume == "all":
        # `--resume spiral`: the name was meant as an experiment.
        given, resume = [*given, resume], ""
    if resume:
        return _one(given, Path(resume))
    names = list(dict.fromkeys(EXPERIMENTS if "all" in given else given))
    if resume is None:
        return names, {}
    folders = {name: folder for name in names if (folder := _folder.newest_unfinished(out, name)) is not None}
    if not folders:
        raise UserError(f"{out} holds no unfinished run of {', '.join(names)}{_failed(out, names)}")
    return names, folders


def _failed(out: Path, names: Sequence[str]) -> str:
    """How the sentence goes on that there is nothing to go on with."""
    anew = "leave --resume out to start anew"
    for folder in (folder for name in names for folder in reversed(_folder.runs(out / name))):
        if (why := _folder.failure(folder)) is not None:
            return (
                f", and the one in {folder} failed ({why}): {anew}, or try it again with --resume {shlex.quote(str(folder))}"
            )
    return f": {anew}"


def _one(given: Sequence[str], folder: Path) -> tuple[list[str], dict[str, Path]]:
    name = read_config(folder)["experiment"]
    if list(given) not in ([], [name]):
        raise UserError(f"{folder} holds a run of {name}, not of {', '.join(given)}")
    return [pick("experiment", name, EXPERIMENTS)], {name: folder}


def check(experiments: Sequence[Experiment], folders: dict[str, Path], options: Mapping[str, Options]) -> None:
    """Raises for options that one of the experiments cannot serve, before the first of them starts."""
    for experiment in experiments:
        if experiment.name in folders:
            continuation(experiment, folders[experiment.name], options[experiment.name])
        else:
            configure(experiment, options[experiment.name])


def joint_report(done: Sequence[Path], out: Path) -> Path:
    """A report on all of them, in `out`."""
    _report.write(done, out / _folder.REPORT)
    return out / _folder.REPORT


def report(paths: Sequence[Path], to: Path | None) -> Path:
    """Writes the report on the finished runs that `paths` are or hold; by default beside what it is about."""
    found = [folder for path in paths for folder in _best(path)]
    others = [folder for path in paths for folder in _all(path) if folder not in found]
    file = to if to is not None else (paths[0] if len(paths) == 1 else Path(".")) / _folder.REPORT
    _report.write(found, file, others)
    return file


def _all(path: Path) -> list[Path]:
    """The runs in the folder of an experiment, or of several, or of one run, which is no folder of runs."""
    return [run for experiment in [path, *(path / name for name in EXPERIMENTS)] for run in _folder.runs(experiment)]


def _best(path: Path) -> list[Path]:
    """A run itself, the best finished run of an experiment's folder, or those of a folder of experiments."""
    if (path / _folder.CONFIG).exists():
        return [path]
    best = []
    for experiment in [path, *(path / name for name in EXPERIMENTS)]:
        finished = [run for run in _folder.runs(experiment) if _folder.has_outcome(run)]
        best += sorted(finished, key=_size)[-1:]  # of equal ones the newest
    if not best:
        raise UserError(f"{path} holds no finished run: `lagrax reproduce crossing` makes one")
    return best


def _size(folder: Path) -> int:
    """The place of a run's preset among the presets, of which the last are the largest."""
    preset = read_config(folder)["preset"]
    return _SIZES.index(preset) if preset in _SIZES else -1
