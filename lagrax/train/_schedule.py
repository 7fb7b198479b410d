"""When the loop looks up: how many iterations a dispatch does, how much time is left, and whether somebody wants to stop."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._compiled import CAPACITY
from ._hosts import Processes

_DISPATCH = 0.5  # seconds: long enough to cost nothing, short enough to answer Ctrl-C


class Pace:
    """Aims at dispatches of half a second, or of a fixed number of iterations."""

    def __init__(self, fixed: int | None):
        self._fixed = fixed
        self._count = 1
        self._each: float | None = None  # seconds per iteration

    def count(self, seconds_left: float) -> int:
        if self._fixed is not None:
            return min(self._fixed, CAPACITY)
        if self._each is None:
            return 1
        wanted = min(_DISPATCH, seconds_left) / max(self._each, 1e-9)
        # The first measurement is of one iteration, and rough.
        return max(1, min(int(wanted), 16 * self._count, CAPACITY))

    def measured(self, count: int, seconds: float) -> None:
        if count:
            self._count, self._each = count, seconds / count


def next_stop(iteration: int, *every: int | None) -> int:
    """The next iteration that is a multiple of one of these."""
    return min(((iteration // n + 1) * n for n in every if n), default=iteration + CAPACITY)


class Clock:
    """Seconds since the start of the call, and until the end of its budget."""

    def __init__(self, budget: float, processes: Processes):
        self.start, self.budget, self._processes = time.monotonic(), budget, processes

    def spent(self) -> float:
        """Of this process."""
        return time.monotonic() - self.start

    def left(self) -> float:
        return self.budget - self.spent()

    def agreed(self) -> float:
        """The time that was spent, for all processes the same."""
        return self._processes.agree(False, self.spent())[1][0]


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM as a wish, which is granted between two dispatches.

    Yields a function that tells whether a signal has asked to stop. The second signal raises `KeyboardInterrupt`.
    """
    received: list[int] = []

    def handler(number, frame):
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    # Python delivers signals to the main thread, and lets no other one ask for them.
    wanted = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield lambda: bool(received)
    finally:
        for number, previous in before.items():
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
