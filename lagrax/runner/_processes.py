"""One experiment on several machines: the same command on each, of which the first writes and prints."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from .._choices import UsageError, UserError


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


@contextmanager
def scratch() -> Iterator[Path]:
    """Where a process that is not the first writes: a folder that goes away at the end."""
    with tempfile.TemporaryDirectory(prefix="lagrax-") as folder:
        yield Path(folder)
