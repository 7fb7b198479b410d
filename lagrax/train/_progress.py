"""How far training is: one line, redrawn."""

import sys
import time

import numpy as np

_TERMINAL_EVERY, _FILE_EVERY = 0.1, 10.0  # seconds
_NAMES = 3  # of an evaluation, in one line


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
