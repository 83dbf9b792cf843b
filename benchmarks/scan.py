"""Time the scans: `python benchmarks/scan.py [--device cuda] [--sections targets,growth] [--json]`.

Every time is a forward and backward pass in float32, the best of several runs; on CUDA it is the replay of a captured
CUDA graph, that is kernel time. Results and gradients are first compared with the plain loop in float64, and a wrong
result is not timed. The baselines are the published loop, the divide-and-conquer scan of the paper's runtime table,
torch's associative_scan, and torch-slices if it is installed.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import scan_baselines as baselines
from sdssm import ops

PUBLISHED_RATIOS = {64: 0.95, 128: 1.41, 256: 1.88, 512: 2.90}
TOLERANCE = 1e-4  # largest error of float32 against the loop in float64, relative to the largest value
N, K, V, P = 64, 8, 2, 1.2

Leaves = dict[str, Tensor]
Loss = Callable[[Leaves], Tensor]


class WrongResultError(RuntimeError):
    """The result of a scan is wrong, so it is not timed."""


@dataclasses.dataclass
class Benchmark:
    """The device, the time to spend on each measurement, and the rows measured so far."""

    device: str
    seconds: float
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, section: str, description: str, **values: Any) -> None:
        """Add a row of results and print it to stderr."""
        self.rows.append({"section": section, "what": description, **values})
        formatted = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{section:10s} {description:62s} {formatted}", file=sys.stderr, flush=True)

    def draw(self, *shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
        """Return normally distributed numbers of standard deviation `scale` on the device."""
        return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(self.device)

    def milliseconds(self, loss: Loss, leaves: Leaves) -> float:
        """Return the best time of one forward and backward pass."""
        inputs = list(leaves.values())

        def run_once() -> None:
            torch.autograd.grad(loss(leaves), inputs)

        if self.device == "cpu":
            return best_cpu_milliseconds(run_once, self.seconds)
        return self.kernel_milliseconds(run_once)

    def kernel_milliseconds(self, run_once: Callable[[], None]) -> float:
        """Return the best time of the replay of a CUDA graph."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for _ in range(3):
                run_once()
        torch.cuda.synchronize()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                run_once()
            return event_time(graph.replay, self.seconds)
        except RuntimeError:  # a baseline that cannot be captured is timed eagerly
            torch.cuda.synchronize()
            return event_time(run_once, self.seconds)

    def peak_memory(self, loss: Loss, leaves: Leaves) -> float:
        """Return the peak memory of one forward and backward pass, without the inputs, in MiB."""
        if self.device != "cpu":
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            torch.autograd.grad(loss(leaves), list(leaves.values()))
            torch.cuda.synchronize()
            return (torch.cuda.max_memory_allocated() - before) / 2**20
        ctypes.CDLL(None).malloc_trim(0)  # memory that earlier runs left in the allocator would hide the growth
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        before = status_field("VmRSS")
        torch.autograd.grad(loss(leaves), list(leaves.values()))
        return (status_field("VmHWM") - before) / 1024


def status_field(field: str) -> int:
    """Return a field of /proc/self/status in KiB, such as VmRSS."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def best_cpu_milliseconds(run: Callable[[], None], seconds: float) -> float:
    """Return the least wall time of `run`, repeated for `seconds` after a warm-up."""
    run()
    times: list[float] = []
    while sum(times) < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def event_time(run: Callable[[], None], seconds: float) -> float:
    """Return the least time of `run` between two CUDA events in milliseconds, repeated for `seconds`."""
    best, spent = math.inf, 0.0
    while spent < seconds:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
        spent += max(start.elapsed_time(end), 1.0) / 1e3
    return best


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest expected value."""
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def check(name: str, loss: Loss, leaves: Leaves, reference: Loss | None = None) -> float:
    """Compare loss and gradients with the plain loop in float64.

    Returns the largest relative error, or raises WrongResultError.
    """
    leaves64 = {key: leaf.detach().double().requires_grad_() for key, leaf in leaves.items()}
    with ops.use_backend("reference"):
        expected = (reference or loss)(leaves64)
        expected_grads = torch.autograd.grad(expected, list(leaves64.values()))
    actual = loss(leaves)
    grads = torch.autograd.grad(actual, list(leaves.values()))
    errors = [relative_error(g, w) for g, w in zip((actual, *grads), (expected, *expected_grads), strict=True)]
    if not max(errors) <= TOLERANCE:
        raise WrongResultError(f"{name}: relative error {max(errors):.1e}, more than {TOLERANCE:.0e}; not timed")
    return max(errors)


def token_problem(benchmark: Benchmark, batch: int, length: int, mode: str = "auto") -> tuple[Loss, Leaves]:
    """Return a loss of `token_scan` and its inputs."""
    table = ops.column_norm(benchmark.draw(V, N, N, scale=0.125), P)
    leaves: Leaves = {"A": table.requires_grad_(), "b": benchmark.draw(V, N, seed=1).requires_grad_()}
    tokens = torch.randint(0, V, (batch, length), generator=torch.Generator().manual_seed(2)).to(benchmark.device)
    weight = benchmark.draw(batch, N, seed=3)

    def loss(inputs: Leaves) -> Tensor:
        final = ops.token_scan(inputs["A"], inputs["b"], tokens, mode=mode)[1]
        return (final * weight.to(final)).sum()

    return loss, leaves


def mixture_problem(benchmark: Benchmark, batch: int, length: int, mode: str = "auto") -> tuple[Loss, Loss, Leaves]:
    """Return the loss of `mixture_scan`, that of the published loop, and their inputs."""
    leaves = {
        "dictionary": benchmark.draw(K, N, N, scale=0.125),
        "weights": benchmark.draw(batch, length, K, seed=1).softmax(-1),
        "b": benchmark.draw(batch, length, N, seed=2),
    }
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    weight = benchmark.draw(batch, N, seed=3)

    def our_loss(inputs: Leaves) -> Tensor:
        final = ops.mixture_scan(inputs["dictionary"], inputs["weights"], inputs["b"], p=P, mode=mode)[1]
        return (final * weight.to(final)).sum()

    def published_loss(inputs: Leaves) -> Tensor:
        final = baselines.published_loop(inputs["dictionary"], inputs["weights"], inputs["b"], P)
        return (final * weight.to(final)).sum()

    return our_loss, published_loss, leaves


def measure_targets(benchmark: Benchmark) -> None:
    """Compare the mixture and token scans with the published loop: the rows of the target table."""
    published_ms: dict[tuple[int, int], float] = {}
    for batch, length in ((16, 64), (16, 128), (16, 512), (128, 40)):
        our_loss, published_loss, leaves = mixture_problem(benchmark, batch, length)
        error = check(f"mixture_scan {batch}x{length}", our_loss, leaves, published_loss)
        published_ms[batch, length] = benchmark.milliseconds(published_loss, leaves)
        our_ms = benchmark.milliseconds(our_loss, leaves)
        ratio = published_ms[batch, length] / our_ms
        description = f"mixture_scan batch {batch} L {length} N {N} K {K}"
        benchmark.add(
            "targets", description, ms=our_ms, published_ms=published_ms[batch, length], ratio=ratio, error=error
        )
    for batch, length in ((128, 40), (16, 512)):
        scan, table = token_problem(benchmark, batch, length)
        error = check(f"token_scan {batch}x{length}", scan, table)
        our_ms = benchmark.milliseconds(scan, table)
        ratio = published_ms[batch, length] / our_ms
        description = f"token_scan batch {batch} L {length} N {N} V {V}"
        benchmark.add(
            "targets", description, ms=our_ms, published_ms=published_ms[batch, length], ratio=ratio, error=error
        )


def measure_modes(benchmark: Benchmark) -> None:
    """Compare the parallel and the recurrent mode at batch 1."""
    times: dict[str, float] = {}
    length = 4096 if benchmark.device != "cpu" else 1024
    for mode in ("recurrent", "parallel"):
        our_loss, published_loss, leaves = mixture_problem(benchmark, 1, 256, mode)
        error = check(f"mixture_scan {mode}", our_loss, leaves, published_loss)
        our_loss, _, leaves = mixture_problem(benchmark, 1, length, mode)
        times[mode] = benchmark.milliseconds(our_loss, leaves)
        benchmark.add("modes", f"mixture_scan batch 1 L {length} {mode}", ms=times[mode], error=error)
    benchmark.add("modes", "recurrent / parallel", ratio=times["recurrent"] / times["parallel"])


def measure_paper(benchmark: Benchmark) -> None:
    """Measure the paper's runtime table, associative_scan and `dense_scan`.

    The table compares an eager loop with the divide-and-conquer scan.
    """
    batch = 16 if benchmark.device != "cpu" else 1
    for length, published_ratio in PUBLISHED_RATIOS.items():
        A = benchmark.draw(batch, length, N, N, scale=0.1)
        leaves = {"A": A.requires_grad_(), "b": benchmark.draw(batch, length, N, seed=1).requires_grad_()}
        scans: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "loop": baselines.dense_loop,
            "divide and conquer": baselines.sklansky,
            "associative_scan": baselines.associative,
            "dense_scan": lambda A, b: ops.dense_scan(A, b)[0],
        }
        times: dict[str, Any] = {}
        for name, scan in scans.items():
            if name == "associative_scan" and length > 128 and benchmark.device == "cpu":
                continue

            def loss(inputs: Leaves, scan: Callable[[Tensor, Tensor], Tensor] = scan) -> Tensor:
                return scan(inputs["A"], inputs["b"]).square().mean()

            def reference(inputs: Leaves) -> Tensor:
                return baselines.dense_loop(inputs["A"], inputs["b"]).square().mean()

            try:
                check(name, loss, leaves, reference)
                times[name] = benchmark.milliseconds(loss, leaves)
            except Exception as error:
                times[name] = f"not timed ({type(error).__name__}: {str(error).splitlines()[0][:60]})"
        ratio = times["loop"] / times["divide and conquer"]
        benchmark.add("paper", f"batch {batch} L {length} ms", **times, ratio=ratio, published=published_ratio)
    for parallel in (False, True):
        description = f"torch-slices {'parallel' if parallel else 'recurrent'} batch 16 L 512"
        try:
            layer = baselines.torch_slices(N, parallel).to(benchmark.device)
            inputs: Leaves = dict(layer.named_parameters())
            x = benchmark.draw(16, 512, N, seed=1)

            def run(_: Leaves, layer: torch.nn.Module = layer, x: Tensor = x) -> Tensor:
                states: Tensor = layer(x)
                return states.square().mean()

            benchmark.add("paper", description, ms=benchmark.milliseconds(run, inputs))
        except Exception as error:
            benchmark.add("paper", description, ms=f"not timed ({type(error).__name__}: {str(error)[:60]})")


def measure_growth(benchmark: Benchmark) -> None:
    """Measure time and memory against L at batch 1.

    `against_linear` compares with linear growth from L = 512.
    """
    for kind in ("token", "mixture"):
        first_ms = 0.0
        for length in (512, 4096, 65536):
            if kind == "token":
                loss, leaves = token_problem(benchmark, 1, length)
            else:
                loss, _, leaves = mixture_problem(benchmark, 1, length)
            if length == 512:
                check(f"{kind}_scan", loss, leaves)
            our_ms, peak_memory = benchmark.milliseconds(loss, leaves), benchmark.peak_memory(loss, leaves)
            first_ms = first_ms or our_ms
            states = length * N * 4 / 2**20
            relative_growth = our_ms / first_ms / (length / 512)
            description = f"{kind}_scan batch 1 L {length}"
            benchmark.add(
                "growth",
                description,
                ms=our_ms,
                against_linear=relative_growth,
                peak_MiB=peak_memory,
                states_MiB=states,
            )


def measure_auto(benchmark: Benchmark) -> None:
    """Measure both modes and "auto"; `loss` is the time of "auto" over that of the better mode."""
    for size in (4, 64):
        for rows, length in ((1, 256), (1, 4096), (64, 256)):
            tokens = torch.randint(0, V, (rows, length), generator=torch.Generator().manual_seed(2)).to(
                benchmark.device
            )
            leaves = {"A": benchmark.draw(V, size, size, scale=0.9 / size**0.5).requires_grad_()}
            x0, times = benchmark.draw(rows, size, seed=3), {}
            for mode in ("recurrent", "parallel", "auto"):

                def loss(inputs: Leaves, mode: str = mode, tokens: Tensor = tokens, x0: Tensor = x0) -> Tensor:
                    start = x0.to(inputs["A"])
                    return ops.token_scan(inputs["A"], None, tokens, start, rescale=True, mode=mode)[1].sum()

                times[mode] = benchmark.milliseconds(loss, leaves)
            slowdown = times["auto"] / min(times["recurrent"], times["parallel"])
            benchmark.add("auto", f"token_scan rows {rows} L {length} N {size} rescaled, ms", **times, loss=slowdown)


SECTIONS: dict[str, Callable[[Benchmark], None]] = {
    "targets": measure_targets,
    "modes": measure_modes,
    "paper": measure_paper,
    "growth": measure_growth,
    "auto": measure_auto,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="some of: " + ", ".join(SECTIONS))
    parser.add_argument("--seconds", type=float, default=0.4, help="time to spend on each figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    benchmark = Benchmark(options.device, options.seconds)
    device_name = (
        torch.cuda.get_device_name() if benchmark.device != "cpu" else platform.processor() or platform.machine()
    )
    environment = {
        "device": device_name,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": platform.machine(),
    }
    has_failed = False
    for name in options.sections.split(","):
        try:
            SECTIONS[name](benchmark)
        except WrongResultError as error:
            has_failed = True
            benchmark.add(name, f"REFUSED: {error}")
    if options.json:
        print(json.dumps({"about": environment, "rows": benchmark.rows}, indent=1))
    else:
        print("  ".join(f"{key} {value}" for key, value in environment.items()))
        for row in benchmark.rows:
            values = {key: value for key, value in row.items() if key not in ("section", "what")}
            formatted = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
            print(f"{row['section']:8s} {row['what']:60s} {formatted}")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
