"""Worker processes for evaluation, which never outlive the process that started them."""

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

from sdssm.errors import RunError

#: Seconds to wait for a signal that was sent to the whole process group and reached a worker first.
SIGNAL_DELAY = 0.3


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Provide a pool of processes that end with the `with` block.

    They end at once if an error or a signal ends the block, and also if this process is killed. Otherwise an orphaned
    worker would keep its GPU memory.
    """
    context = get_context("spawn")  # the CUDA state of a process cannot be forked
    # Nothing is ever written into this pipe: its reader is only notified when the other end closes.
    read_end, write_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_exit_with_parent, initargs=(read_end,))
    try:
        yield pool
    except BaseException as error:
        write_end.close()
        if isinstance(error, BrokenProcessPool):
            time.sleep(SIGNAL_DELAY)
            raise RunError(
                f"one of {workers} evaluation processes was killed, possibly because memory ran out; run the command "
                "again to resume, with fewer --workers if it happens again"
            ) from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        write_end.close()
        read_end.close()


def _exit_with_parent(pipe: Connection) -> None:
    """Initialize a worker: ignore Ctrl-C, which the parent handles, and exit when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        try:
            pipe.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
