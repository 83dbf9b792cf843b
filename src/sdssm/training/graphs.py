"""CUDA graphs: capture a sequence of kernel launches once, then replay it as a single launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch

from sdssm.errors import first_line


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


def try_capture(function: Callable[[], None], device: torch.device) -> tuple[torch.cuda.CUDAGraph | None, str]:
    """Try to capture a function; return the graph, or None and the reason why it cannot be captured.

    A capture that fails can leave the memory allocator and the random number generator of the device as if it were
    still under way. So operations that wait for the GPU, the usual obstacle, are looked for without a capture first,
    and after a failed capture both are brought back.
    """
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        function()  # compiles kernels and fills caches
        stream.synchronize()
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            function()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            return None, _capture_reason(error)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        stream.synchronize()
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    random_state, previous = generator.get_state(), torch.cuda.current_stream(device)
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        with _garbage_collection_disabled(), torch.cuda.graph(graph, pool=pool, stream=stream):
            function()
    except Exception as error:
        torch.cuda.set_stream(previous)  # a failed capture leaves its own
        _end_failed_capture(graph, pool, index)
        _restore_random_state(generator, random_state)
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return None, _capture_reason(error)
    previous.wait_stream(stream)
    return graph, ""


def _capture_reason(error: Exception) -> str:
    text = first_line(error)
    if "synchronizing CUDA operation" in text:
        return "it waits for the GPU in each step, as .item() does"
    return f"a CUDA graph cannot capture it ({text[:120]})"


def _end_failed_capture(graph: torch.cuda.CUDAGraph, pool: tuple[int, int], index: int) -> None:
    """Bring the memory allocator of a device back after a failed capture.

    Which of the steps is needed depends on where the capture failed and on the version of torch; one that is not needed
    raises an error that can be ignored.
    """
    # The allocator would wait for the end of the capture before it frees memory.
    for clean_up in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
        with suppress(Exception):
            clean_up(index, pool)
    with suppress(Exception):
        graph.reset()
    with suppress(Exception):  # reports, and so clears, the error of the capture
        torch.cuda.synchronize(index)


def _restore_random_state(generator: torch.Generator, state: torch.Tensor) -> None:
    """Set the state of a device's generator, even if it believes that a failed capture is still under way."""
    try:
        torch.rand(1, device=generator.device)
        generator.set_state(state)
    except RuntimeError:
        other = torch.Generator(generator.device)
        other.set_state(state)
        generator.graphsafe_set_state(other.graphsafe_get_state())


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
