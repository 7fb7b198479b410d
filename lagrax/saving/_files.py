"""Files that are replaced as a whole, and folders that one process at a time writes into."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

fcntl: Any
try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked, and leftovers stay
    fcntl = None


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A new file, which takes the place of `path` if the block ends well: whoever reads finds the old content or the new.

    It is written beside `path` under a name of its own. Several writers do not meet, and the last one wins; what those that
    were killed have left is removed.
    """
    path = os.path.realpath(path)
    _remove_leftovers(path)
    with _naming(path), _temporary(path) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows does not rename an open file
            os.replace(file.name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.remove(file.name)
            raise


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of the system name the file that is to be written, and not the one beside it or none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from None


def _temporary(path: str) -> BinaryIO:
    """A new file beside `path`, locked for as long as it is open: a lock goes with its process, however that ends."""
    folder, name = os.path.split(path)
    while True:
        file = open(os.path.join(folder, f".{name}.{secrets.token_hex(8)}.partial"), "xb")  # noqa: SIM115
        if fcntl is None:
            return file
        with suppress(OSError):  # a file system without locks: then nobody else can have one either
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # taken for a leftover in the moment before it was locked


def _remove_leftovers(path: str) -> None:
    """Removes the temporary files of `path` whose writers are gone: those that can be locked."""
    if fcntl is None:
        return
    folder, name = os.path.split(path)
    pattern = re.compile(re.escape(f".{name}.") + r"[0-9a-f]{16}\.partial")
    with suppress(OSError):
        for leftover in [entry.path for entry in os.scandir(folder) if pattern.fullmatch(entry.name)]:
            with suppress(OSError), open(leftover, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(leftover)


@contextmanager
def sole_writer(folder: str | os.PathLike) -> Iterator[None]:
    """Holds a folder as long as the block lasts. `BlockingIOError` if another process, or thread, has it."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process is writing into {folder}, expected none: wait until it has ended, or choose another folder"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)
