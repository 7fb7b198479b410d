"""Ctrl-C and SIGTERM as a wish to stop, which is granted between two dispatches."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether a signal has asked to stop. The second signal raises `KeyboardInterrupt`."""
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
