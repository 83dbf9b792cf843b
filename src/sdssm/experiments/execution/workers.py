"""Processes that evaluate, and that never outlive the one they work for."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import FrameType

from sdssm.errors import RunError

#: Seconds for a signal to come that was sent to a whole group of processes, and ended a worker first.
MOMENT = 0.3


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes, which end with this block: at once where an error or a signal ends it, and also where this
    process is killed, whatever they are at. A worker left alone would keep its memory on the GPU for ever."""
    context = get_context("spawn")  # what a process has on a GPU cannot be forked
    # Nobody ever writes into this pipe: who reads it learns that its other end is gone.
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with, initargs=(theirs,))
    try:
        yield pool
    except BaseException as error:
        ours.close()
        if isinstance(error, BrokenProcessPool):
            time.sleep(MOMENT)
            raise RunError(
                f"one of {workers} processes that evaluate was killed, maybe for want of memory; the same command goes "
                "on, with fewer workers if it happens again"
            ) from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        ours.close()
        theirs.close()


def _end_with(other: Connection) -> None:
    """In a worker: Ctrl-C is for the process it works for, and with that process it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        try:
            other.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what must be tidied up is. Only the main thread can listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
