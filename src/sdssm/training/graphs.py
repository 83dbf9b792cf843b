"""CUDA graphs: many kernels launched as one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class Graph:
    """Work that is done eagerly the first time it is called, captured the second time, and replayed from then on.

    The eager call compiles kernels and fills caches, which a capture must not. Capturing does no work, so the second
    call captures and replays. Tensors that the work reads and writes must stay where they are.
    """

    def __init__(self, work: Callable[[], None], stream: torch.cuda.Stream) -> None:
        self._work, self._stream = work, stream
        self._seen = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Do the work once more."""
        if not self._seen:
            self._seen = True
            self._work()
            return
        if self._graph is None:
            self._stream.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with _uncollected(), torch.cuda.graph(self._graph, stream=self._stream):
                self._work()
        self._graph.replay()


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage is collected: a graph that nobody holds any more would be taken apart, which spoils a capture."""
    gc.collect()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
