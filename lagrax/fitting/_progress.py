"""How far a fit is: one line with the stage and its time, which goes on while JAX compiles; the log; a thread to work in."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

from ..train._metrics import duration

_TERMINAL_EVERY, _FILE_EVERY = 0.25, 10.0  # seconds
_T = TypeVar("_T")


class Progress:
    """Called with (stage, fraction, text): redraws a line on a terminal, or prints one every ten seconds elsewhere."""

    def __init__(self, log: TextIO, shown: bool = True):
        self._log, self._shown = log, shown
        self._terminal = shown and sys.stderr.isatty()
        self._begin = self._since = time.monotonic()
        self._stage = self._text = ""
        self._fraction: float | None = None
        self._width, self._drawn = 0, 0.0
        self._lock = threading.Lock()

    def __call__(self, stage: str, fraction: float | None, text: str = "") -> None:
        with self._lock:
            if stage != self._stage:
                self._end_stage()
                self._stage, self._since = stage, time.monotonic()
                self.note(f"{stage} …")
            self._fraction, self._text = fraction, text
        self.draw()

    def draw(self) -> None:
        """The present line, if it is time for it."""
        with self._lock:
            now = time.monotonic()
            if (
                not self._shown
                or not self._stage
                or now - self._drawn < (_TERMINAL_EVERY if self._terminal else _FILE_EVERY)
            ):
                return
            self._drawn = now
            share = "" if self._fraction is None else f" {100 * self._fraction:3.0f} %"
            text = f"{self._stage}{share}, {duration(now - self._since)}{f': {self._text}' if self._text else ''}"
            self._print(text, end=not self._terminal)

    def note(self, text: str) -> None:
        """A line of the log, with the time since the start."""
        print(f"{time.monotonic() - self._begin:8.1f} s  {text}", file=self._log, flush=True)

    def finish(self) -> None:
        with self._lock:
            self._end_stage()
            self._stage = ""

    def _end_stage(self) -> None:
        if self._stage:
            took = duration(time.monotonic() - self._since)
            self.note(f"{self._stage}: {took}{f', {self._text}' if self._text else ''}")
            if self._terminal:
                self._print(f"{self._stage}: {took}", end=True)

    def _print(self, text: str, end: bool) -> None:
        start, self._width = ("\r" if self._terminal else ""), max(self._width, len(text))
        print(start + text.ljust(self._width if self._terminal else 0), end="\n" if end else "", file=sys.stderr, flush=True)
        if end:
            self._width = 0


@contextmanager
def reporting(file: Path, shown: bool) -> Iterator[Progress]:
    """A progress whose line goes on while nobody calls it, as during a compilation; logs to `file`."""
    over = threading.Event()
    with open(file, "a", encoding="utf-8") as log:
        progress = Progress(log, shown)

        def tick() -> None:
            while not over.wait(0.5):
                progress.draw()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            over.set()
            thread.join()
            progress.finish()


def waiting_for(work: Callable[[], _T]) -> _T:
    """What `work` returns or raises. It is done in another thread, while this one waits and hears signals at once: inside
    JAX, they would wait for the end of a compilation. (And Python at exit, for a thread of `concurrent.futures`.)"""
    found: dict[str, Any] = {}

    def run() -> None:
        try:
            found["result"] = work()
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    if "error" in found:
        raise found["error"]
    return found["result"]
