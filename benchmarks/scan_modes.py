"""What `mode="auto"` knows: both modes timed over a grid, `python benchmarks/scan_modes.py FILE [--without-numba]`.

Every point is one forward and backward in float32. On CUDA it is the time of a recorded graph, replayed: kernel time,
without what the host spends on launching. On the CPU it is the processor time of one thread, the modes in turn, the
least of several runs, so that a busy machine changes it little. FILE holds for each scan log2(recurrent / parallel)
over N x L x B, null where a point would take too long or too much memory, or where both modes are the same launch;
`src/sdssm/ops/measured` has the files that `sdssm.ops.costs` reads.
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
from benchmarks.scan import Bench
from sdssm import ops
from sdssm.ops import chunks, compiled

KINDS = ("token", "mixture", "dense", "block_diagonal", "diagonal")
GRID = {
    "cuda": {"N": (16, 64, 128), "L": (40, 128, 512, 2048, 8192), "B": (1, 4, 16, 64, 128, 512)},
    "cpu": {"N": (4, 16, 64), "L": (16, 64, 256, 1024, 4096), "B": (1, 4, 16, 64)},
}
MOST_ENTRIES = {"cuda": 2**28, "cpu": 2**24}
BLOCKS, SYMBOLS, MATRICES = 4, 2, 8


def problem(bench: Bench, kind: str, N: int, L: int, B: int) -> Callable[[str], None]:
    """One forward and backward in the mode given."""
    leaves = {"x0": bench.draw(B, N, seed=1), "b": bench.draw(B, L, N, seed=2)}
    if kind == "token":
        leaves |= {"A": bench.draw(SYMBOLS, N, N, scale=0.9 / N**0.5), "b": bench.draw(SYMBOLS, N, seed=2)}
        tokens = torch.randint(0, SYMBOLS, (B, L), generator=torch.Generator().manual_seed(3)).to(bench.device)
    elif kind == "mixture":
        leaves |= {"A": bench.draw(MATRICES, N, N), "weights": bench.draw(B, L, MATRICES, seed=4).softmax(-1)}
    else:
        size = {"dense": N, "block_diagonal": N // BLOCKS, "diagonal": 1}[kind]
        form = {"dense": (N, N), "block_diagonal": (BLOCKS, size, size), "diagonal": (N,)}[kind]
        leaves |= {"A": bench.draw(B, L, *form, scale=0.9 / size**0.5)}
    inputs = [leaf.requires_grad_() for leaf in leaves.values()]
    arriving = bench.draw(B, L, N, seed=5)

    def once(mode: str) -> None:
        A, b, x0 = leaves["A"], leaves["b"], leaves["x0"]
        if kind == "token":
            states, _ = ops.token_scan(A, b, tokens, x0, mode=mode)
        elif kind == "mixture":
            states, _ = ops.mixture_scan(A, leaves["weights"], b, x0, p=1.2, mode=mode)
        else:
            states, _ = getattr(ops, f"{kind}_scan")(A, b, x0, mode=mode)
        torch.autograd.grad(states, inputs, arriving)

    return once


def same_launch(device: str, kind: str, N: int, L: int, B: int) -> bool:
    """Whether the parallel mode has one chunk only."""
    block = {"block_diagonal": N // BLOCKS, "diagonal": 1}.get(kind, N)
    if device == "cpu":
        return chunks.chunk_length(L, block) >= L
    return min(64, max(16, 1 << max(math.isqrt(B * L) // 2 - 1, 0).bit_length())) >= L


def processor_milliseconds(once: Callable[[str], None], seconds: float) -> tuple[float, float]:
    """The least processor time of either mode, taken in turn."""
    best = {"recurrent": math.inf, "parallel": math.inf}
    for mode in best:
        once(mode)
    spent = 0.0
    while spent < seconds:
        for mode in best:
            begin = time.process_time()
            once(mode)
            took = time.process_time() - begin
            best[mode] = min(best[mode], took)
            spent += took
    return best["recurrent"] * 1e3, best["parallel"] * 1e3


def measure(bench: Bench, kind: str, N: int, L: int, B: int) -> tuple[float, float]:
    once = problem(bench, kind, N, L, B)
    if bench.device == "cpu":
        return processor_milliseconds(once, bench.seconds)
    one, other = (bench.kernel_milliseconds(functools.partial(once, mode)) for mode in ("recurrent", "parallel"))
    return one, other


def entries(kind: str, N: int, L: int, B: int) -> int:
    return B * L * {"dense": N * N, "block_diagonal": N * N // BLOCKS}.get(kind, N)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--without-numba", action="store_true", help="the torch-only implementation on the CPU")
    parser.add_argument("--seconds", type=float, default=0.1, help="time to spend on each point")
    parser.add_argument("--most", type=float, default=500.0, help="milliseconds after which longer scans are left out")
    options = parser.parse_args()
    device = options.device
    torch.set_num_threads(1)
    bench = Bench(device, options.seconds)
    axes = GRID[device]
    tables: dict[str, Any] = {}
    with compiled.without_numba() if options.without_numba else nullcontext():
        for kind in KINDS:
            slow: list[tuple[int, int, int]] = []
            tables[kind] = []
            for N in axes["N"]:
                tables[kind].append([])
                for L in axes["L"]:
                    row: list[float | None] = []
                    for B in axes["B"]:
                        large = entries(kind, N, L, B) > MOST_ENTRIES[device]
                        longer = any(n <= N and length <= L and b <= B for n, length, b in slow)
                        if large or longer or same_launch(device, kind, N, L, B):
                            row.append(None)
                            continue
                        one, other = measure(bench, kind, N, L, B)
                        row.append(round(math.log2(one / other), 2))
                        if max(one, other) > options.most:
                            slow.append((N, L, B))
                    tables[kind][-1].append(row)
                    print(kind, N, L, row, file=sys.stderr, flush=True)
    timed = (
        "kernel time, CUDA graph replay" if device != "cpu" else "processor time of one thread, least of several runs"
    )
    about: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device != "cpu" else processor(),
        "torch": torch.__version__,
        "what": f"log2(recurrent / parallel) of {timed}; forward and backward, float32, with b and x0; "
        f"{SYMBOLS} symbols, {MATRICES} matrices and p 1.2, {BLOCKS} blocks; "
        "null: not measured (too long, too large), or one chunk, where the modes are the same",
    }
    options.file.write_text(written(about, axes, tables))
    return 0


def written(about: dict[str, Any], axes: dict[str, Any], tables: dict[str, Any]) -> str:
    """JSON with a line for every N and L."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in about.items()]
    lines += [f'"axes": {json.dumps(axes)},', '"log2_recurrent_over_parallel": {']
    for kind, of_sizes in tables.items():
        sizes = ",\n".join("  [\n   " + ",\n   ".join(map(json.dumps, table)) + "\n  ]" for table in of_sizes)
        lines.append(f' "{kind}": [\n{sizes}\n ]' + ("," if kind != list(tables)[-1] else ""))
    return "{\n" + "\n".join(lines) + "\n}}\n"


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"one thread of {names[0]}" if names else platform.machine()


if __name__ == "__main__":
    raise SystemExit(main())
