"""Runs experiments, each in a folder of its own: which to start or go on with, from the configuration to the report."""

import os
import platform
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from .._choices import EXPERIMENTS, UsageError, UserError, pick
from . import _folder, _report
from ._configuration import Configuration, Options, configure, from_json
from ._experiment import Experiment

PACKAGES = ("lagrax", "jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "matplotlib")


# --- several at once --------------------------------------------------------------------------------------------------


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
    name = _folder.read_config(folder)["experiment"]
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


# --- one of them ------------------------------------------------------------------------------------------------------


def start(experiment: Experiment, out: Path, options: Options, progress: bool = True) -> Path | None:
    """Runs it in a new folder under `out`, which is returned; None, if another process has it."""
    config = configure(experiment, options)
    if not is_first():
        _assist(config, False)
        return None
    folder = _folder.create(out, experiment.name, {**config.to_json(), **surroundings()})
    return _complete(config, folder, False, progress)


def resume(experiment: Experiment, folder: Path, options: Options, progress: bool = True) -> Path | None:
    """Continues what was interrupted in `folder`, with the configuration found there."""
    config = continuation(experiment, folder, options)
    if not is_first():
        _assist(config, True)
        return None
    return _complete(config, folder, True, progress)


def continuation(experiment: Experiment, folder: Path, options: Options) -> Configuration:
    """The configuration of the run in `folder`; raises if that is finished, is not one that could have been started, or
    contradicts the options."""
    saved = _folder.read_config(folder)
    if saved["experiment"] != experiment.name:
        raise UserError(f"{folder} holds a run of {saved['experiment']}, not of {experiment.name}")
    if _folder.is_finished(folder):
        raise UserError(f"the run in {folder} is finished: its report is {folder / _folder.REPORT}")
    try:
        config = from_json(experiment, saved)
    except (UserError, TypeError, AttributeError) as error:
        raise _folder.foreign(folder, str(error)) from None
    config.check_same(options)
    return config


def _complete(config: Configuration, folder: Path, again: bool, progress: bool) -> Path:
    begin = time.perf_counter()
    with _plain_errors(), _folder.working_in(folder), _precision(config.experiment.x64):
        if not _folder.has_outcome(folder):
            outcome = config.experiment.run(config.settings(folder, again, progress))
            _folder.write_outcome(folder, outcome, time.perf_counter() - begin, again)
        _report.write([folder], folder / _folder.REPORT)
    return folder


@contextmanager
def _precision(x64: bool):
    """Double precision for one experiment; never takes it away from a caller who has switched it on."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", before or x64)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@contextmanager
def _plain_errors():
    """A checkpoint that cannot be read, or a file that cannot be written, is for the user to put right."""
    try:
        yield
    except OSError as error:
        raise UserError(_sentence(error)) from None
    except ValueError as error:
        from ..train import CheckpointError

        if isinstance(error, CheckpointError):
            raise UserError(str(error)) from None
        raise


def _sentence(error: OSError) -> str:
    """What training says of its files is one already; of others there are the words of the system."""
    if error.strerror is None:
        return str(error)
    return f"{error.filename or 'a file'} cannot be written or read ({error.strerror}): put that right, then resume the run"


# --- the same command on several machines, of which the first writes and prints ---------------------------------------


def join(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Connects to the other processes, if any are spoken of. To be called before JAX does anything."""
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 3:
        return
    if missing:
        raise UsageError(f"{' and '.join(missing)} missing: several processes need all of {', '.join(given)}")
    assert processes is not None and process is not None
    if not 0 <= process < processes:
        raise UsageError(f"--process {process}, expected one of 0, …, {processes - 1}, since there are {processes}")
    # On CPUs, JAX has no way to talk to other machines unless told which.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"process {process} cannot join {coordinator} ({str(error).splitlines()[0]})") from None


def is_first() -> bool:
    return jax.process_index() == 0


def _assist(config: Configuration, again: bool) -> None:
    """The part of a process that is not the first: it computes its share, and writes where nothing is kept."""
    with tempfile.TemporaryDirectory(prefix="lagrax-") as folder, _precision(config.experiment.x64), _plain_errors():
        config.experiment.run(config.settings(Path(folder), again, False))


# --- where and when ---------------------------------------------------------------------------------------------------


def surroundings() -> dict[str, Any]:
    """When, with which versions and where a run takes place."""
    return {"started": datetime.now().isoformat(" ", "seconds"), "versions": _versions(), "machine": _machine()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _machine() -> str:
    devices = f"{jax.local_device_count()} × {jax.devices()[0].device_kind}"
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, JAX on {jax.default_backend()} ({devices})"
