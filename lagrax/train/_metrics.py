"""What is recorded of a run, a row per iteration: in memory, as lines of JSON, and as one line that is redrawn."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

from ..saving._files import replacing
from ._checkpoint import saying_how_to_go_on

_TERMINAL_EVERY, _FILE_EVERY = 0.1, 10.0  # seconds
_NAMES = 3  # of an evaluation, in one line


class History:
    """Columns of equal length, one entry per iteration."""

    def __init__(self, columns: dict[str, np.ndarray] | None = None):
        self._pieces = [columns] if columns else []

    def append(self, rows: dict[str, np.ndarray]) -> None:
        self._pieces.append(rows)

    def columns(self) -> dict[str, np.ndarray]:
        if len(self._pieces) > 1:
            # A run of version 0.1.0 has a column more than it goes on with, unless its loss still returns it.
            names = [name for name in self._pieces[0] if all(name in piece for piece in self._pieces)]
            self._pieces = [{name: np.concatenate([piece[name] for piece in self._pieces]) for name in names}]
        return dict(self._pieces[0]) if self._pieces else {}


class MetricsFile:
    """`metrics.jsonl`: a line per iteration, such as `{"iteration": 7, "seconds": 0.12, "loss": [0.5, 0.4]}`.

    An evaluation has a line of its own, `{"iteration": 7, "evaluation": {"accuracy": [0.9, 0.8]}}`, before that of its
    iteration. Numbers that are not finite, which JSON does not have, are null. Without a path nothing is written.
    """

    def __init__(self, path: str | None, columns: dict[str, np.ndarray], evaluations: dict[int, dict[str, np.ndarray]]):
        """Starts the file with what was recorded before, whatever a killed run has left in it."""
        self._path = path
        self._file: BinaryIO | None = None
        if path is None:
            return
        with saying_how_to_go_on(path), replacing(path) as file:
            file.writelines(line.encode() for line in _all_lines(columns, evaluations))
        self._file = open(path, "ab")  # noqa: SIM115

    def write(self, iteration: int, columns: dict[str, np.ndarray]) -> None:
        self._write(_lines(iteration, columns))

    def write_evaluation(self, iteration: int, found: dict[str, np.ndarray]) -> None:
        self._write([_evaluation(iteration, found)])

    def _write(self, lines: Iterable[str]) -> None:
        if self._file is not None:
            with saying_how_to_go_on(self._path):
                self._file.writelines(line.encode() for line in lines)
                self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # what is not on the disk yet is what could not be written, and was said then
                self._file.close()


def _all_lines(columns: dict[str, np.ndarray], evaluations: dict[int, dict[str, np.ndarray]]) -> Iterator[str]:
    """In the order in which they were written at first."""
    left = {iteration: _evaluation(iteration, found) for iteration, found in evaluations.items()}
    for iteration, line in enumerate(_lines(0, columns)):
        yield left.pop(iteration, "") + line
    yield from left.values()


def _evaluation(iteration: int, found: dict[str, np.ndarray]) -> str:
    plain = {name: _plain(value) for name, value in found.items()}
    return json.dumps({"iteration": iteration, "evaluation": plain}, allow_nan=False) + "\n"


def _lines(iteration: int, columns: dict[str, np.ndarray]) -> Iterator[str]:
    names = ["iteration", *columns]
    for i, row in enumerate(zip(*(_plain(column) for column in columns.values()), strict=True), iteration):
        yield json.dumps(dict(zip(names, (i, *row), strict=True)), allow_nan=False) + "\n"


def _plain(column: np.ndarray) -> Any:
    """Python numbers, None where they are not finite."""
    if column.dtype.kind not in "biu":
        column = column.astype(np.float64)  # bfloat16 among them, of which NumPy knows little
        if not np.isfinite(column).all():
            missing = ~np.isfinite(column)
            column = column.astype(object)
            column[missing] = None
    return column.tolist()


class Progress:
    """Prints loss, rate and time left to stderr: one line that is redrawn, or a line every ten seconds if it is a file."""

    def __init__(self, shown: bool, done: int, iterations: int):
        self._shown, self._first, self._iterations = shown, done, iterations
        self._terminal = sys.stderr.isatty()
        self._start = self._drawn = time.monotonic()
        self._width = 0

    def compiling(self) -> None:
        """Says so on a terminal; `compiled` says how long it took, if that was a second or more."""
        if self._shown and self._terminal:
            self._print("compiling …", end=False)

    def compiled(self) -> None:
        now = time.monotonic()
        if self._shown and now - self._start >= 1:
            self._print(f"compiled in {duration(now - self._start)}", end=True)
        self._start = self._drawn = now

    def update(self, done: int, loss: np.ndarray, evaluation: dict[str, np.ndarray]) -> None:
        now = time.monotonic()
        if not self._shown or now - self._drawn < (_TERMINAL_EVERY if self._terminal else _FILE_EVERY):
            return
        self._drawn = now
        rate = (done - self._first) / max(now - self._start, 1e-9)
        share = f"{100 * done // self._iterations:3d} %  {done}/{self._iterations}"
        left = duration((self._iterations - done) / rate) if rate else "?"
        numbers = "  ".join([describe_loss(loss), *describe_evaluation(evaluation, loss.shape)])
        self._print(f"{share}  {numbers}  {rate:.3g} iterations/s  {left} left", end=not self._terminal)

    def finish(self, message: str) -> None:
        if self._shown:
            self._print(message, end=True)

    def _print(self, text: str, end: bool) -> None:
        start, self._width = ("\r" if self._terminal else ""), max(self._width, len(text))
        line = text.ljust(self._width) if self._terminal else text
        print(start + line, end="\n" if end else "", file=sys.stderr, flush=True)


def describe_loss(loss: np.ndarray) -> str:
    """The loss, or the median over the seeds that are still going."""
    good = np.atleast_1d(loss)[np.isfinite(np.atleast_1d(loss))]
    if good.size == 0:
        return "loss not finite"
    return f"loss {np.median(good):.4g}" + (f" (median of {good.size})" if np.ndim(loss) else "")


def describe_evaluation(evaluation: dict[str, np.ndarray], shape: tuple[int, ...]) -> list[str]:
    """Such as `accuracy 0.97`, for the first few names with one number in all or per seed: then it is the median."""
    scalars = {name: value for name, value in evaluation.items() if value.shape in ((), shape)}
    return [f"{name} {np.median(value.astype(float)):.4g}" for name, value in list(scalars.items())[:_NAMES]]


def duration(seconds: float) -> str:
    """Such as 12 s, 3:05 or 2:00:07."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours = whole // 60, whole // 3600
    return f"{hours}:{minutes % 60:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
