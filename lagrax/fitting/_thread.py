"""Work in a thread of its own."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def waiting_for(work: Callable[[], T]) -> T:
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
