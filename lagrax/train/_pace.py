"""How many iterations the next dispatch should do."""

from ._loop import CAPACITY

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
