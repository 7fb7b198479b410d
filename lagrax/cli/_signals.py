"""Ctrl-C and SIGTERM."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPTED = "interrupted"


@contextmanager
def interruptible(message: str | Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the process here and now, with a message; the second one does if that has to be made first.

    An exception might be lost in a callback of JAX, and would not stop what JAX compiles in a thread of its own: Python
    waits for that when it ends, for minutes perhaps, and has crashed then. Nothing else is lost, because files are replaced
    as a whole, and training, which has something to save, listens to these signals itself.
    """

    def say(text: str) -> None:
        with suppress(OSError):
            os.write(2, f"\nlagrax: {text}\n".encode())

    def last_words(make: Callable[[], str]) -> str:
        say(f"{INTERRUPTED}; writing what there is (Ctrl-C leaves at once)")
        try:
            return make()
        except Exception as error:  # a full disk
            return f"{INTERRUPTED}; what there is could not be written ({error})"

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def stop(*_: Any) -> None:
        begun = time.monotonic()

        def again(*_: Any) -> None:
            # `timeout` and others signal a process and then its group: the same wish, said twice.
            if time.monotonic() - begun > 1:
                os._exit(130)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, again)
        with suppress(Exception):
            sys.stdout.flush()
        say(message if isinstance(message, str) else last_words(message))
        os._exit(130)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
