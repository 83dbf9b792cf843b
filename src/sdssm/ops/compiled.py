"""The recurrent passes compiled by numba (optional: sdssm[numba]), on several threads.

The threads come from a pool of this module instead of numba's `prange`: numba's default threading layer must not be
entered by two Python threads at once and does not survive a fork, while here each thread runs a compiled function
without the GIL on rows of its own. Every row is computed by the same instructions for any number of threads.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sdssm.ops.transitions import Transitions, flush_threshold, no_factors

#: Multiplications below which a second thread costs more time than it saves.
MIN_WORK_PER_THREAD = 200_000

_enabled = importlib.util.find_spec("numba") is not None
_threads: int | None = None  # None: as many as torch uses
_pools: dict[tuple[str, int], ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def is_available() -> bool:
    """Whether numba is installed and not disabled by `without_numba`."""
    return _enabled


@contextmanager
def without_numba() -> Iterator[None]:
    """Disable numba inside the block: the CPU implementation then uses torch only."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


@contextmanager
def kernel_threads(count: int) -> Iterator[None]:
    """Let compiled kernels use up to `count` threads inside the block; outside of it they use as many as torch.

    Their results do not depend on the number of threads, while some sums of torch do.
    """
    global _threads
    before, _threads = _threads, count
    try:
        yield
    finally:
        _threads = before


def available_threads() -> int:
    """Return the number of threads that compiled kernels may use."""
    return torch.get_num_threads() if _threads is None else _threads


def thread_pool(threads: int, work: str) -> ThreadPoolExecutor:
    """Return a pool of so many threads for one kind of work, the same one at every call.

    Work that waits for other work must not be in one pool with it: all threads could wait.
    """
    pool = _pools.get((work, threads))
    if pool is None:
        pool = _pools[work, threads] = ThreadPoolExecutor(threads, thread_name_prefix=f"sdssm-{work}")
    return pool


@functools.cache
def import_kernels(kind: str) -> Any:
    """Return the compiled kernels of an operation, `sdssm.ops.<kind>.numba_kernels`; numba is imported only here."""
    return importlib.import_module(f"sdssm.ops.{kind}.numba_kernels")


@functools.cache
def _kernels() -> Any:
    from sdssm.ops import numba_kernels

    return numba_kernels


def run_over_rows(
    kernel: Callable[..., None], rows: int, work: int, *args: Any, least: int = MIN_WORK_PER_THREAD
) -> None:
    """Run kernel(first, last, *args) over the rows 0..rows, split over threads if it is worth it.

    work: the number of multiplications in all; least: how many are worth a thread.
    """
    parts = max(1, min(available_threads(), rows, work // least))
    if parts == 1:
        kernel(0, rows, *args)
        return
    edges = [rows * part // parts for part in range(parts + 1)]
    jobs = [thread_pool(parts - 1, "kernels").submit(kernel, edges[i], edges[i + 1], *args) for i in range(1, parts)]
    kernel(edges[0], edges[1], *args)
    for job in jobs:
        job.result()


def as_array(tensor: Tensor | None, like: Tensor, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a numpy view for a kernel to read; None becomes an empty array of the rank of `shape`."""
    if tensor is None or tensor.numel() == 0:
        tensor = like.new_empty((0,) * len(shape))
    return tensor.detach().contiguous().numpy()


def forward(
    kind: str,
    matrices: tuple[Tensor, ...],
    size: int,
    drive: Tensor | None,
    x0: Tensor | None,
    lengths: Tensor | None,
    rescale: bool,
) -> tuple[Tensor, Tensor]:
    """Compute the same as `Transitions.forward`.

    The last of `matrices` starts with the dimensions rows and length.
    """
    like = matrices[0]
    rows, length = matrices[-1].shape[:2]
    states = like.new_empty(rows, length, size)
    factors = like.new_empty((rows, length), dtype=like.dtype.to_real()) if rescale else no_factors(like)
    run_over_rows(
        getattr(_kernels(), f"{kind}_forward"),
        rows,
        rows * length * size * like.shape[-1],
        *(tensor.detach().contiguous().numpy() for tensor in matrices),
        as_array(drive, like, (0, 0, 0)),
        as_array(x0, like, (0, 0)),
        lengths_array(lengths, rows, length),
        torch.finfo(like.dtype).tiny,
        states.numpy(),
        _factors(factors, states, rescale),
    )
    return states, factors


def backward(
    kind: str,
    matrices: tuple[Tensor, ...],
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
    rescale: bool,
) -> tuple[Tensor, Tensor]:
    """Compute the same as `Transitions.backward`."""
    rows, length, size = states.shape
    adjoints = torch.empty_like(states)
    grad_x0 = states.new_empty(rows, size)
    run_over_rows(
        getattr(_kernels(), f"{kind}_backward"),
        rows,
        rows * length * size * matrices[0].shape[-1],
        *(tensor.detach().contiguous().numpy() for tensor in matrices),
        as_array(grad_states, states, (0, 0, 0)),
        as_array(grad_final, states, (0, 0)),
        lengths_array(lengths, rows, length),
        states.detach().contiguous().numpy(),
        _factors(factors, states, rescale),
        flush_threshold(states.dtype),
        adjoints.numpy(),
        grad_x0.numpy(),
    )
    return adjoints, grad_x0


def _factors(factors: Tensor, states: Tensor, rescale: bool) -> np.ndarray[Any, Any]:
    """Return the factors (P, L), or an empty array of the same type.

    Real and contiguous in both cases, since numba compiles a kernel again for every new type of array.
    """
    shaped = factors.reshape(states.shape[:2]) if rescale else no_factors(states).reshape(0, 1)
    return shaped.contiguous().numpy()


def lengths_array(lengths: Tensor | None, rows: int, length: int) -> np.ndarray[Any, Any]:
    """Return the length of every row, (P,)."""
    return np.full(rows, length, dtype=np.int64) if lengths is None else lengths.numpy()


def string_arrays(tokens: Tensor, lengths: Tensor | None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return tokens (R, B, L) and lengths (R, B) of strings as arrays for a kernel, (R B, L) and (R B,)."""
    flat = tokens.flatten(0, 1).long()
    return flat.numpy(), lengths_array(None if lengths is None else lengths.flatten().long(), *flat.shape)


class CompiledTransitions(Transitions):
    """Matrices with compiled passes, `<kernel>_forward` and `<kernel>_backward`.

    Without numba the passes of `Transitions` are used.
    """

    kernel: ClassVar[str]

    @abstractmethod
    def tables(self, *, adjoint: bool) -> tuple[Tensor, ...]:
        """Return the tensors that the kernel reads; the last one starts with the dimensions rows and length."""

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        if is_available():
            return forward(self.kernel, self.tables(adjoint=False), self.size, drive, x0, lengths, rescale)
        return super().forward(drive, x0, lengths, rescale, like)

    def backward(
        self,
        grad_states: Tensor | None,
        grad_final: Tensor | None,
        lengths: Tensor | None,
        states: Tensor,
        factors: Tensor,
        rescale: bool,
    ) -> tuple[Tensor, Tensor]:
        if is_available():
            tables = self.tables(adjoint=True)
            return backward(self.kernel, tables, grad_states, grad_final, lengths, states, factors, rescale)
        return super().backward(grad_states, grad_final, lengths, states, factors, rescale)
