"""CUDA graphs: capture a sequence of kernel launches once, then replay it as a single launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class CudaGraph:
    """A function that runs eagerly on the first call, is captured on the second, and then replayed.

    The eager call compiles kernels and fills caches, which must not happen during a capture. Capturing executes
    nothing, so the second call captures and then replays. All tensors that the function reads and writes must keep
    their memory.
    """

    def __init__(self, function: Callable[[], None], stream: torch.cuda.Stream) -> None:
        self._function, self._stream = function, stream
        self._ran_eagerly = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run the function once."""
        if not self._ran_eagerly:
            self._ran_eagerly = True
            self._function()
            return
        if self._graph is None:
            self._stream.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with _garbage_collection_disabled(), torch.cuda.graph(self._graph, stream=self._stream):
                self._function()
        self._graph.replay()


@contextmanager
def _garbage_collection_disabled() -> Iterator[None]:
    """Collect garbage now, and disable the garbage collector inside the block.

    Destroying another graph during a capture would invalidate the capture.
    """
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
