"""Where strings are drawn and proofs run: in worker processes, or in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from sdssm.experiments.execution.workers import worker_pool


class Pool(Protocol):
    """Where strings are drawn and proofs run."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Start a call, and return its future result."""


class InlinePool:
    """Runs each call at once in this process: for tests, and for machines without a core to spare."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # as a worker would
            future.set_exception(error)
        return future


@contextmanager
def open_pool(workers: int) -> Iterator[Pool]:
    """Provide worker processes; with 0 workers the calls run in this process."""
    if workers < 1:
        yield InlinePool()
        return
    with worker_pool(workers) as pool:
        yield pool


def call_on_one_core(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a worker process with one thread: there are as many workers as cores."""
    torch.set_num_threads(1)
    return function(*arguments)
