"""Time both modes of the scans over a grid; `mode="auto"` reads the results.

    python benchmarks/scan_modes.py FILE [--without-numba]

Every point is one forward and backward pass in float32. On CUDA it is the replay of a captured CUDA graph: kernel time,
without the time the host spends on launches. On the CPU it is the processor time of one thread, the least of several
runs with the two modes in turn, so that it depends little on other processes. FILE holds log2(recurrent / parallel) for
each scan over N x L x B; null if a point would take too long or too much memory, or if both modes are the same launch.
`sdssm.ops.costs` reads the files in `src/sdssm/ops/measured`.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.scan import Benchmark
from sdssm import ops
from sdssm.ops import chunks, compiled

KINDS = ("token", "mixture", "dense", "block_diagonal", "diagonal")
GRID = {
    "cuda": {"N": (16, 64, 128), "L": (40, 128, 512, 2048, 8192), "B": (1, 4, 16, 64, 128, 512)},
    "cpu": {"N": (4, 16, 64), "L": (16, 64, 256, 1024, 4096), "B": (1, 4, 16, 64)},
}
MAX_ENTRIES = {"cuda": 2**28, "cpu": 2**24}
BLOCKS, SYMBOLS, MATRICES = 4, 2, 8


def problem(benchmark: Benchmark, kind: str, N: int, L: int, B: int) -> Callable[[str], None]:
    """Return a function that runs one forward and backward pass in a mode."""
    leaves = {"x0": benchmark.draw(B, N, seed=1), "b": benchmark.draw(B, L, N, seed=2)}
    if kind == "token":
        leaves |= {"A": benchmark.draw(SYMBOLS, N, N, scale=0.9 / N**0.5), "b": benchmark.draw(SYMBOLS, N, seed=2)}
        tokens = torch.randint(0, SYMBOLS, (B, L), generator=torch.Generator().manual_seed(3)).to(benchmark.device)
    elif kind == "mixture":
        leaves |= {"A": benchmark.draw(MATRICES, N, N), "weights": benchmark.draw(B, L, MATRICES, seed=4).softmax(-1)}
    else:
        size = {"dense": N, "block_diagonal": N // BLOCKS, "diagonal": 1}[kind]
        form = {"dense": (N, N), "block_diagonal": (BLOCKS, size, size), "diagonal": (N,)}[kind]
        leaves |= {"A": benchmark.draw(B, L, *form, scale=0.9 / size**0.5)}
    inputs = [leaf.requires_grad_() for leaf in leaves.values()]
    grad_states = benchmark.draw(B, L, N, seed=5)

    def run_once(mode: str) -> None:
        A, b, x0 = leaves["A"], leaves["b"], leaves["x0"]
        if kind == "token":
            states, _ = ops.token_scan(A, b, tokens, x0, mode=mode)
        elif kind == "mixture":
            states, _ = ops.mixture_scan(A, leaves["weights"], b, x0, p=1.2, mode=mode)
        else:
            states, _ = getattr(ops, f"{kind}_scan")(A, b, x0, mode=mode)
        torch.autograd.grad(states, inputs, grad_states)

    return run_once


def is_same_launch(device: str, kind: str, N: int, L: int, B: int) -> bool:
    """Return whether the parallel mode has only one chunk, and so is the same as the recurrent mode."""
    block = {"block_diagonal": N // BLOCKS, "diagonal": 1}.get(kind, N)
    if device == "cpu":
        return chunks.chunk_length(L, block) >= L
    return min(64, max(16, 1 << max(math.isqrt(B * L) // 2 - 1, 0).bit_length())) >= L


def cpu_milliseconds(run_once: Callable[[str], None], seconds: float) -> tuple[float, float]:
    """Return the least processor time of the recurrent and the parallel mode, run in turn."""
    best = {"recurrent": math.inf, "parallel": math.inf}
    for mode in best:
        run_once(mode)
    total = 0.0
    while total < seconds:
        for mode in best:
            start = time.process_time()
            run_once(mode)
            elapsed = time.process_time() - start
            best[mode] = min(best[mode], elapsed)
            total += elapsed
    return best["recurrent"] * 1e3, best["parallel"] * 1e3


def measure(benchmark: Benchmark, kind: str, N: int, L: int, B: int) -> tuple[float, float]:
    """Return the times of the recurrent and the parallel mode in milliseconds."""
    run_once = problem(benchmark, kind, N, L, B)
    if benchmark.device == "cpu":
        return cpu_milliseconds(run_once, benchmark.seconds)
    recurrent_ms, parallel_ms = (
        benchmark.kernel_milliseconds(functools.partial(run_once, mode)) for mode in ("recurrent", "parallel")
    )
    return recurrent_ms, parallel_ms


def entry_count(kind: str, N: int, L: int, B: int) -> int:
    """Return the number of entries of the largest tensor of a scan."""
    return B * L * {"dense": N * N, "block_diagonal": N * N // BLOCKS}.get(kind, N)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--without-numba", action="store_true", help="measure the torch implementation on the CPU")
    parser.add_argument("--seconds", type=float, default=0.1, help="time to spend on each point")
    parser.add_argument(
        "--most", type=float, default=500.0, help="skip larger scans after one that took this many milliseconds"
    )
    options = parser.parse_args()
    device = options.device
    torch.set_num_threads(1)
    benchmark = Benchmark(device, options.seconds)
    axes = GRID[device]
    tables: dict[str, Any] = {}
    with compiled.without_numba() if options.without_numba else nullcontext():
        for kind in KINDS:
            slow_points: list[tuple[int, int, int]] = []
            tables[kind] = []
            for N in axes["N"]:
                tables[kind].append([])
                for L in axes["L"]:
                    row: list[float | None] = []
                    for B in axes["B"]:
                        too_large = entry_count(kind, N, L, B) > MAX_ENTRIES[device]
                        too_slow = any(n <= N and length <= L and b <= B for n, length, b in slow_points)
                        if too_large or too_slow or is_same_launch(device, kind, N, L, B):
                            row.append(None)
                            continue
                        recurrent_ms, parallel_ms = measure(benchmark, kind, N, L, B)
                        row.append(round(math.log2(recurrent_ms / parallel_ms), 2))
                        if max(recurrent_ms, parallel_ms) > options.most:
                            slow_points.append((N, L, B))
                    tables[kind][-1].append(row)
                    print(kind, N, L, row, file=sys.stderr, flush=True)
    clock = (
        "kernel time, CUDA graph replay" if device != "cpu" else "processor time of one thread, least of several runs"
    )
    header: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device != "cpu" else processor_name(),
        "torch": torch.__version__,
        "what": f"log2(recurrent / parallel) of {clock}; forward and backward, float32, with b and x0; "
        f"{SYMBOLS} symbols, {MATRICES} matrices and p 1.2, {BLOCKS} blocks; "
        "null: not measured (too long, too large), or one chunk, where the modes are the same",
    }
    options.file.write_text(format_json(header, axes, tables))
    return 0


def format_json(header: dict[str, Any], axes: dict[str, Any], tables: dict[str, Any]) -> str:
    """Return the file as JSON with a line for every N and L."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in header.items()]
    lines += [f'"axes": {json.dumps(axes)},', '"log2_recurrent_over_parallel": {']
    for kind, tables_of_kind in tables.items():
        sizes = ",\n".join("  [\n   " + ",\n   ".join(map(json.dumps, table)) + "\n  ]" for table in tables_of_kind)
        lines.append(f' "{kind}": [\n{sizes}\n ]' + ("," if kind != list(tables)[-1] else ""))
    return "{\n" + "\n".join(lines) + "\n}}\n"


def processor_name() -> str:
    """Return the name of the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"one thread of {names[0]}" if names else platform.machine()


if __name__ == "__main__":
    raise SystemExit(main())
