"""CUDA graphs: capture a sequence of kernel launches once, then replay it as a single launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

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
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    random_state = generator.get_state()
    graph = torch.cuda.CUDAGraph()
    try:
        with _garbage_collection_disabled(), torch.cuda.graph(graph, stream=stream):
            function()
    except Exception as error:
        _end_failed_capture(graph, generator, random_state, device)
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return None, _capture_reason(error)
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph, ""


def _capture_reason(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "synchronizing CUDA operation" in text:
        return "it waits for the GPU in each step, as .item() does"
    return f"a CUDA graph cannot capture it ({text[:120]})"


def _end_failed_capture(
    graph: torch.cuda.CUDAGraph, generator: torch.Generator, random_state: torch.Tensor, device: torch.device
) -> None:
    """Bring the memory allocator and the random number generator back after a failed capture.

    Which of the steps is needed depends on where the capture failed and on the version of torch; each is harmless if it
    is not needed.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    with suppress(Exception):
        torch._C._cuda_endAllocateToPool(index, graph.pool())
    with suppress(Exception):
        graph.reset()
    with suppress(Exception):
        torch.cuda.synchronize(device)
    try:
        torch.rand(1, device=device)
        generator.set_state(random_state)
    except RuntimeError:  # it believes that the capture is still under way: give it a new state
        with suppress(Exception):
            other = torch.Generator(device)
            other.set_state(random_state)
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
