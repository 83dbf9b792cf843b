"""Ctrl-C, SIGTERM and a closed terminal as a flag, so that a training can be saved before it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

#: Seconds within which signals count as one: a shell or `timeout` may send one to the process and to its process group.
REPEAT_SECONDS = 0.5


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C, SIGTERM or SIGHUP (a closed terminal) has been received.

    A second signal, later than REPEAT_SECONDS, raises KeyboardInterrupt at once. Python delivers signals to the main
    thread only: in another thread the function always returns False.
    """
    received, first_time = threading.Event(), [0.0]
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return

    def handle(*_: object) -> None:
        if received.is_set() and monotonic() - first_time[0] > REPEAT_SECONDS:
            raise KeyboardInterrupt
        if not received.is_set():
            first_time[0] = monotonic()
        received.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` ignores it
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield received.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
