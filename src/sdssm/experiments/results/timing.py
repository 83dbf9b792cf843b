"""The runtime table: time of the SD-SSM scan, forward and backward, in both modes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from sdssm import ops
from sdssm.devices import resolve_device
from sdssm.errors import SdssmError
from sdssm.experiments.results.folder import results_header
from sdssm.experiments.specs.catalogue import published_numbers
from sdssm.experiments.specs.spec import Spec, TimingSpec
from sdssm.progress import ProgressOption, report_progress

MODES = ("recurrent", "parallel")
#: The row of the table with the time of the recurrent mode divided by that of the parallel mode.
RATIO = "recurrent / parallel"
#: The largest difference between the modes, relative to the largest value, at which they are timed.
TOLERANCE = 1e-3

#: Runs forward and backward in a mode, and returns the states and all gradients.
ScanProblem = Callable[[str], tuple[Tensor, ...]]


class TimingError(SdssmError):
    """A scan whose result is wrong, so that its time is meaningless."""


def measure_runtime(
    spec: Spec, device: str | torch.device = "auto", progress: ProgressOption = False
) -> dict[str, Any]:
    """Return the milliseconds of both modes at every length, and their ratio, with the published values."""
    target = resolve_device(device)
    published = published_numbers(spec)
    cells = []
    with report_progress(progress) as reporter:
        # The time of a measurement grows with the length, once a single scan takes longer than the time for it.
        reporter.start(f"time {spec.name}", total=sum(spec.timing.lengths))
        for done, length in zip(accumulate(spec.timing.lengths), spec.timing.lengths, strict=True):
            run = _make_problem(spec.timing, length, target)
            _check_modes_agree(run, length)
            values = {mode: _milliseconds(run, mode, target, spec.timing.seconds) for mode in MODES}
            values[RATIO] = values["recurrent"] / values["parallel"]
            for row, value in values.items():
                numbers = published.get((row, str(length)))
                cells.append(
                    {
                        "row": row,
                        "column": str(length),
                        "value": value,
                        "unit": "" if row == RATIO else "ms",
                        "published": None if numbers is None else numbers.max,
                        "source": None if numbers is None else numbers.source,
                    }
                )
            reporter.update(done)
    columns = [str(length) for length in spec.timing.lengths]
    return {**results_header(spec), "rows": [*MODES, RATIO], "columns": columns, "cells": cells, "runs": []}


def _make_problem(sizes: TimingSpec, L: int, device: torch.device) -> ScanProblem:
    """Return a function that runs the scan on random inputs of length L, forward and backward."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    B, N, K = sizes.batch, sizes.state, sizes.dictionary
    A, weights = draw(K, N, N).requires_grad_(), draw(B, L, K).softmax(-1).requires_grad_()
    b, x0, grad_states = draw(B, L, N).requires_grad_(), draw(B, N).requires_grad_(), draw(B, L, N)

    def run(mode: str) -> tuple[Tensor, ...]:
        states, _ = ops.mixture_scan(A, weights, b, x0, p=1.2, mode=mode)
        return states, *torch.autograd.grad(states, (A, weights, b, x0), grad_states)

    return run


def _check_modes_agree(run: ScanProblem, length: int) -> None:
    for recurrent, parallel in zip(*(run(mode) for mode in MODES), strict=True):
        difference = float(((recurrent - parallel).abs().max() / recurrent.abs().max()).detach())
        if not difference <= TOLERANCE:
            raise TimingError(f"at length {length} the modes differ by {difference:.1e}; a wrong result is not timed")


def _milliseconds(run: ScanProblem, mode: str, device: torch.device, seconds: float) -> float:
    """Return the best time of as many repetitions as fit into `seconds`, at least three."""
    if device.type == "cuda":
        return _gpu_milliseconds(lambda: run(mode), seconds)
    best, spent, count = math.inf, 0.0, 0
    while spent < seconds or count < 3:
        started = time.perf_counter()
        run(mode)
        elapsed = time.perf_counter() - started
        best, spent, count = min(best, elapsed), spent + elapsed, count + 1
    return best * 1e3


def _gpu_milliseconds(run: Callable[[], Any], seconds: float) -> float:
    """Return the best time of a replayed CUDA graph: kernels only, without the time to launch them."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        run()
    best, started = math.inf, time.perf_counter()
    while time.perf_counter() - started < seconds or best == math.inf:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        best = min(best, float(first.elapsed_time(last)))
    return best
