"""How fast the scans are: `python benchmarks/scan.py [--device cuda] [--sections targets,growth] [--json]`.

Every figure is forward and backward, float32, the best of several runs; on CUDA the time of a recorded graph, replayed,
so that it is kernel time. What is timed is first compared with the plain loop in float64, gradients included, and a
result that is wrong is not timed. Baselines stand beside: the published loop, the divide-and-conquer scan of the
paper's runtime table, torch's associative_scan, torch-slices where installed.
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
ALLOWED = 1e-4  # of float32 against the loop in float64, of the largest value; the check before the clock
N, K, V, P = 64, 8, 2, 1.2

Leaves = dict[str, Tensor]
Loss = Callable[[Leaves], Tensor]


class WrongResultError(RuntimeError):
    """A scan that is not timed because its result is wrong."""


@dataclasses.dataclass
class Bench:
    """Where and how long to measure, and the rows measured so far."""

    device: str
    seconds: float
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, section: str, what: str, **values: Any) -> None:
        self.rows.append({"section": section, "what": what, **values})
        shown = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{section:10s} {what:62s} {shown}", file=sys.stderr, flush=True)

    def draw(self, *shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
        return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(self.device)

    def milliseconds(self, loss: Loss, leaves: Leaves) -> float:
        """The best time of one forward and backward."""
        inputs = list(leaves.values())

        def once() -> None:
            torch.autograd.grad(loss(leaves), inputs)

        return best_of(once, self.seconds) if self.device == "cpu" else self.kernel_milliseconds(once)

    def kernel_milliseconds(self, once: Callable[[], None]) -> float:
        """The best time of a recorded graph, replayed."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            for _ in range(3):
                once()
        torch.cuda.synchronize()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                once()
            return event_time(graph.replay, self.seconds)
        except RuntimeError:  # a baseline that cannot be recorded is timed as it runs
            torch.cuda.synchronize()
            return event_time(once, self.seconds)

    def peak(self, loss: Loss, leaves: Leaves) -> float:
        """MiB taken at most during one forward and backward beyond what the inputs take."""
        if self.device != "cpu":
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            torch.autograd.grad(loss(leaves), list(leaves.values()))
            torch.cuda.synchronize()
            return (torch.cuda.max_memory_allocated() - before) / 2**20
        ctypes.CDLL(None).malloc_trim(0)  # what earlier runs left in the allocator would hide this one's need
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        before = resident("VmRSS")
        torch.autograd.grad(loss(leaves), list(leaves.values()))
        return (resident("VmHWM") - before) / 1024


def resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def best_of(run: Callable[[], None], seconds: float) -> float:
    run()
    times: list[float] = []
    while sum(times) < seconds:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def event_time(run: Callable[[], None], seconds: float) -> float:
    best, spent = math.inf, 0.0
    while spent < seconds:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
        spent += max(begin.elapsed_time(end), 1.0) / 1e3
    return best


def relative(found: Tensor, wanted: Tensor) -> float:
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))


def check(name: str, loss: Loss, leaves: Leaves, truth: Loss | None = None) -> float:
    """Compare value and gradients with the plain loop in float64; the largest error, or WrongResultError."""
    wide = {key: leaf.detach().double().requires_grad_() for key, leaf in leaves.items()}
    with ops.use_backend("reference"):
        wanted = (truth or loss)(wide)
        wanted_grads = torch.autograd.grad(wanted, list(wide.values()))
    found = loss(leaves)
    grads = torch.autograd.grad(found, list(leaves.values()))
    errors = [relative(g, w) for g, w in zip((found, *grads), (wanted, *wanted_grads), strict=True)]
    if not max(errors) <= ALLOWED:
        raise WrongResultError(f"{name}: wrong by {max(errors):.1e}, allowed {ALLOWED:.0e}; not timed")
    return max(errors)


def token_problem(bench: Bench, batch: int, length: int, mode: str = "auto") -> tuple[Loss, Leaves]:
    table = ops.column_norm(bench.draw(V, N, N, scale=0.125), P)
    leaves: Leaves = {"A": table.requires_grad_(), "b": bench.draw(V, N, seed=1).requires_grad_()}
    tokens = torch.randint(0, V, (batch, length), generator=torch.Generator().manual_seed(2)).to(bench.device)
    weight = bench.draw(batch, N, seed=3)

    def loss(given: Leaves) -> Tensor:
        final = ops.token_scan(given["A"], given["b"], tokens, mode=mode)[1]
        return (final * weight.to(final)).sum()

    return loss, leaves


def mixture_problem(bench: Bench, batch: int, length: int, mode: str = "auto") -> tuple[Loss, Loss, Leaves]:
    """Our loss, the published loop's, and their leaves."""
    leaves = {
        "dictionary": bench.draw(K, N, N, scale=0.125),
        "weights": bench.draw(batch, length, K, seed=1).softmax(-1),
        "b": bench.draw(batch, length, N, seed=2),
    }
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    weight = bench.draw(batch, N, seed=3)

    def ours(given: Leaves) -> Tensor:
        final = ops.mixture_scan(given["dictionary"], given["weights"], given["b"], p=P, mode=mode)[1]
        return (final * weight.to(final)).sum()

    def published(given: Leaves) -> Tensor:
        final = baselines.published_loop(given["dictionary"], given["weights"], given["b"], P)
        return (final * weight.to(final)).sum()

    return ours, published, leaves


def targets(bench: Bench) -> None:
    """The rows of the target table: mixture and token scans beside the published way."""
    loop: dict[tuple[int, int], float] = {}
    for batch, length in ((16, 64), (16, 128), (16, 512), (128, 40)):
        ours, published, leaves = mixture_problem(bench, batch, length)
        error = check(f"mixture_scan {batch}x{length}", ours, leaves, published)
        loop[batch, length] = bench.milliseconds(published, leaves)
        took = bench.milliseconds(ours, leaves)
        ratio = loop[batch, length] / took
        what = f"mixture_scan batch {batch} L {length} N {N} K {K}"
        bench.add("targets", what, ms=took, published_ms=loop[batch, length], ratio=ratio, error=error)
    for batch, length in ((128, 40), (16, 512)):
        scan, table = token_problem(bench, batch, length)
        error = check(f"token_scan {batch}x{length}", scan, table)
        took = bench.milliseconds(scan, table)
        ratio = loop[batch, length] / took
        what = f"token_scan batch {batch} L {length} N {N} V {V}"
        bench.add("targets", what, ms=took, published_ms=loop[batch, length], ratio=ratio, error=error)


def modes(bench: Bench) -> None:
    """Parallel against recurrent mode, both ours, at batch 1."""
    times: dict[str, float] = {}
    length = 4096 if bench.device != "cpu" else 1024
    for mode in ("recurrent", "parallel"):
        ours, published, leaves = mixture_problem(bench, 1, 256, mode)
        error = check(f"mixture_scan {mode}", ours, leaves, published)
        ours, _, leaves = mixture_problem(bench, 1, length, mode)
        times[mode] = bench.milliseconds(ours, leaves)
        bench.add("modes", f"mixture_scan batch 1 L {length} {mode}", ms=times[mode], error=error)
    bench.add("modes", "recurrent / parallel", ratio=times["recurrent"] / times["parallel"])


def paper(bench: Bench) -> None:
    """The paper's runtime table: an eager loop and the divide-and-conquer scan; associative_scan and ours beside."""
    batch = 16 if bench.device != "cpu" else 1
    for length, published_ratio in PUBLISHED_RATIOS.items():
        A = bench.draw(batch, length, N, N, scale=0.1)
        leaves = {"A": A.requires_grad_(), "b": bench.draw(batch, length, N, seed=1).requires_grad_()}
        ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "loop": baselines.given_loop,
            "divide and conquer": baselines.sklansky,
            "associative_scan": baselines.associative,
            "dense_scan": lambda A, b: ops.dense_scan(A, b)[0],
        }
        times: dict[str, Any] = {}
        for name, way in ways.items():
            if name == "associative_scan" and length > 128 and bench.device == "cpu":
                continue

            def loss(given: Leaves, way: Callable[[Tensor, Tensor], Tensor] = way) -> Tensor:
                return way(given["A"], given["b"]).square().mean()

            def truth(given: Leaves) -> Tensor:
                return baselines.given_loop(given["A"], given["b"]).square().mean()

            try:
                check(name, loss, leaves, truth)
                times[name] = bench.milliseconds(loss, leaves)
            except Exception as error:
                times[name] = f"not timed ({type(error).__name__}: {str(error).splitlines()[0][:60]})"
        ratio = times["loop"] / times["divide and conquer"]
        bench.add("paper", f"batch {batch} L {length} ms", **times, ratio=ratio, published=published_ratio)
    for parallel in (False, True):
        what = f"torch-slices {'parallel' if parallel else 'recurrent'} batch 16 L 512"
        try:
            layer = baselines.torch_slices(N, parallel).to(bench.device)
            given: Leaves = dict(layer.named_parameters())
            x = bench.draw(16, 512, N, seed=1)

            def run(_: Leaves, layer: torch.nn.Module = layer, x: Tensor = x) -> Tensor:
                states: Tensor = layer(x)
                return states.square().mean()

            bench.add("paper", what, ms=bench.milliseconds(run, given))
        except Exception as error:
            bench.add("paper", what, ms=f"not timed ({type(error).__name__}: {str(error)[:60]})")


def growth(bench: Bench) -> None:
    """Time and memory as L grows at batch 1; growth is against linear from L = 512."""
    for kind in ("token", "mixture"):
        first = 0.0
        for length in (512, 4096, 65536):
            if kind == "token":
                loss, leaves = token_problem(bench, 1, length)
            else:
                loss, _, leaves = mixture_problem(bench, 1, length)
            if length == 512:
                check(f"{kind}_scan", loss, leaves)
            took, peak = bench.milliseconds(loss, leaves), bench.peak(loss, leaves)
            first = first or took
            states = length * N * 4 / 2**20
            against = took / first / (length / 512)
            what = f"{kind}_scan batch 1 L {length}"
            bench.add("growth", what, ms=took, against_linear=against, peak_MiB=peak, states_MiB=states)


def auto(bench: Bench) -> None:
    """Both modes and what "auto" chose: `loss` is its time over the better one's."""
    for size in (4, 64):
        for rows, length in ((1, 256), (1, 4096), (64, 256)):
            tokens = torch.randint(0, V, (rows, length), generator=torch.Generator().manual_seed(2)).to(bench.device)
            leaves = {"A": bench.draw(V, size, size, scale=0.9 / size**0.5).requires_grad_()}
            x0, times = bench.draw(rows, size, seed=3), {}
            for mode in ("recurrent", "parallel", "auto"):

                def loss(given: Leaves, mode: str = mode, tokens: Tensor = tokens, x0: Tensor = x0) -> Tensor:
                    start = x0.to(given["A"])
                    return ops.token_scan(given["A"], None, tokens, start, rescale=True, mode=mode)[1].sum()

                times[mode] = bench.milliseconds(loss, leaves)
            worse = times["auto"] / min(times["recurrent"], times["parallel"])
            bench.add("auto", f"token_scan rows {rows} L {length} N {size} rescaled, ms", **times, loss=worse)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "targets": targets,
    "modes": modes,
    "paper": paper,
    "growth": growth,
    "auto": auto,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="some of: " + ", ".join(SECTIONS))
    parser.add_argument("--seconds", type=float, default=0.4, help="time to spend on each figure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    bench = Bench(options.device, options.seconds)
    chip = torch.cuda.get_device_name() if bench.device != "cpu" else platform.processor() or platform.machine()
    about = {"device": chip, "torch": torch.__version__, "threads": torch.get_num_threads(), "cpu": platform.machine()}
    failed = False
    for name in options.sections.split(","):
        try:
            SECTIONS[name](bench)
        except WrongResultError as error:
            failed = True
            bench.add(name, f"REFUSED: {error}")
    if options.json:
        print(json.dumps({"about": about, "rows": bench.rows}, indent=1))
    else:
        print("  ".join(f"{key} {value}" for key, value in about.items()))
        for row in bench.rows:
            rest = {key: value for key, value in row.items() if key not in ("section", "what")}
            shown = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in rest.items())
            print(f"{row['section']:8s} {row['what']:60s} {shown}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
