"""Ctrl-C and SIGTERM, for who wants to save before it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

#: Seconds within which signals are one: a shell or `timeout` may send it to the process and to its group.
AGAIN = 0.5


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C (or SIGTERM) came; another one later no longer waits. Only the main thread can listen."""
    asked, when = threading.Event(), [0.0]
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def first(*_: object) -> None:
        if asked.is_set() and monotonic() - when[0] > AGAIN:
            raise KeyboardInterrupt
        if not asked.is_set():
            when[0] = monotonic()
        asked.set()

    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
