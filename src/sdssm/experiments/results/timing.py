"""The runtime table: forward and backward of SD-SSM's scan, step by step and in parallel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sdssm import ops
from sdssm.devices import resolve_device
from sdssm.errors import SdssmError
from sdssm.experiments.results.folder import head
from sdssm.experiments.specs.catalogue import published_numbers
from sdssm.experiments.specs.spec import Spec, Timing

MODES = ("recurrent", "parallel")
#: The row that compares them: times of the recurrent mode for one of the parallel one.
RATIO = "recurrent / parallel"
#: How far two modes may be apart, of the largest value: what is wrong is not timed.
ALLOWED = 1e-3


class TimingError(SdssmError):
    """A scan whose result is wrong, so that its time says nothing."""


def timed(spec: Spec, device: str | torch.device = "auto") -> dict[str, Any]:
    """Milliseconds of both modes at every length, and their ratio, beside what was published."""
    where = resolve_device(device)
    published = published_numbers(spec)
    cells = []
    for length in spec.timing.lengths:
        once = _problem(spec.timing, length, where)
        _check(once, length)
        took = {mode: _milliseconds(once, mode, where, spec.timing.seconds) for mode in MODES}
        took[RATIO] = took["recurrent"] / took["parallel"]
        for row, value in took.items():
            known = published.get((row, str(length)))
            cells.append(
                {
                    "row": row,
                    "column": str(length),
                    "value": value,
                    "unit": "" if row == RATIO else "ms",
                    "published": None if known is None else known.max,
                    "source": None if known is None else known.source,
                }
            )
    columns = [str(length) for length in spec.timing.lengths]
    return {**head(spec), "rows": [*MODES, RATIO], "columns": columns, "cells": cells, "runs": []}


def _problem(of: Timing, L: int, device: torch.device) -> Callable[[str], tuple[Tensor, ...]]:
    """One forward and backward in the mode given: the states and all gradients."""
    chance = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=chance).to(device)

    B, N, K = of.batch, of.state, of.dictionary
    A, weights = draw(K, N, N).requires_grad_(), draw(B, L, K).softmax(-1).requires_grad_()
    b, x0, arriving = draw(B, L, N).requires_grad_(), draw(B, N).requires_grad_(), draw(B, L, N)

    def once(mode: str) -> tuple[Tensor, ...]:
        states, _ = ops.mixture_scan(A, weights, b, x0, p=1.2, mode=mode)
        return states, *torch.autograd.grad(states, (A, weights, b, x0), arriving)

    return once


def _check(once: Callable[[str], tuple[Tensor, ...]], length: int) -> None:
    for one, other in zip(*(once(mode) for mode in MODES), strict=True):
        apart = float(((one - other).abs().max() / one.abs().max()).detach())
        if not apart <= ALLOWED:
            raise TimingError(f"at length {length} the modes differ by {apart:.1e}; a wrong result is not timed")


def _milliseconds(once: Callable[[str], tuple[Tensor, ...]], mode: str, device: torch.device, seconds: float) -> float:
    """The best of as many as fit into the time given, at least three."""
    if device.type == "cuda":
        return _on_gpu(lambda: once(mode), seconds)
    best, spent, count = math.inf, 0.0, 0
    while spent < seconds or count < 3:
        begin = time.perf_counter()
        once(mode)
        took = time.perf_counter() - begin
        best, spent, count = min(best, took), spent + took, count + 1
    return best * 1e3


def _on_gpu(once: Callable[[], Any], seconds: float) -> float:
    """Of a recorded graph, replayed: the time of the kernels, without that of launching them."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
    with torch.cuda.stream(side):
        for _ in range(3):
            once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        once()
    best, begin = math.inf, time.perf_counter()
    while time.perf_counter() - begin < seconds or best == math.inf:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        best = min(best, float(first.elapsed_time(last)))
    return best
