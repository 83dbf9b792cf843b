"""Ctrl-C, SIGTERM and a closed terminal as a flag, so that a training can be saved before it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

#: Seconds within which signals count as one: a shell or `timeout` may send one to the process and to its process group,
#: and a user may press Ctrl-C twice.
REPEAT_SECONDS = 0.5


class Interrupted(KeyboardInterrupt):
    """A signal ended the work; `number` is the signal, SIGINT for Ctrl-C. A shell reports 128 + `number`."""

    def __init__(self, *args: object, number: int = signal.SIGINT) -> None:
        super().__init__(*args)
        self.number = number


class StopFlag:
    """A flag that signals set: it is called without arguments, and returns whether one was received.

    Another signal may interrupt `handle` between any two of its instructions, and then runs `handle` too. So it only
    reads and sets plain attributes: a lock, as in `threading.Event`, would wait for itself.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGINT  #: the first signal
        self._first_time: float | None = None

    def __call__(self) -> bool:
        return self._first_time is not None

    def handle(self, number: int, _frame: object) -> None:
        """Set the flag; a signal that comes later than REPEAT_SECONDS after the first one raises `Interrupted`."""
        now, first_time = monotonic(), self._first_time
        if first_time is None:
            self.number = number
            self._first_time = now
        elif now - first_time > REPEAT_SECONDS:
            raise Interrupted(number=number)

    def handle_at_once(self, number: int, frame: object) -> None:
        """Set the flag, and raise `Interrupted` for the first signal too."""
        is_first = self._first_time is None
        self.handle(number, frame)
        if is_first:
            raise Interrupted(number=number)


@contextmanager
def stop_on_signal() -> Iterator[StopFlag]:
    """Yield a function that returns whether Ctrl-C, SIGTERM or SIGHUP (a closed terminal) has been received.

    Whatever must be saved after a signal is saved within the block: afterwards signals have their usual effect, to end
    the process. A second signal, later than REPEAT_SECONDS, raises `Interrupted` at once. SIGHUP is left alone if it
    was ignored before, as `nohup` does. Python delivers signals to the main thread only: in another thread the function
    always returns False.
    """
    flag = StopFlag()
    with _handled_by(flag.handle):
        yield flag


@contextmanager
def interrupt_on_signal() -> Iterator[None]:
    """Raise `Interrupted` on Ctrl-C, SIGTERM or SIGHUP, so that the block cleans up.

    Signals within REPEAT_SECONDS of the first one are ignored: the second one of `timeout` must not end the cleaning.
    It has no effect outside the main thread.
    """
    with _handled_by(StopFlag().handle_at_once):
        yield


@contextmanager
def _handled_by(handle: Callable[[int, object], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in previous.items():
            # None: the handler was not installed by Python and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
