"""Check that nothing has become slower: `python -m benchmarks.check [--update] [--rows NAME ...]`, a minute on a CPU.

Each row is our time over that of a baseline in the same run, in processor time on one thread, so that other programs
matter little. Both are run in turn many times and the least time of each counts. A row fails if its ratio is more than
15 % above the stored one (benchmarks/check.json) in each of three attempts; then the exit code is 1. `--update` stores
the ratios of this run: after a change that is meant to move them, and on a new machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

import sdssm
from benchmarks import models, scan, train
from benchmarks import scan_baselines as baselines
from benchmarks.tasks import sample_in_python
from sdssm import ops
from sdssm.training.engine import new_model

STORED = Path(__file__).with_name("check.json")
#: The largest ratio that passes, relative to the stored one.
LIMIT = 1.15
#: Seconds of processor time for an attempt, pairs of runs at least, and attempts before a row fails.
SECONDS, PAIRS, ATTEMPTS = 1.5, 3, 3
CPU = torch.device("cpu")
#: Something to time, and a clock that counts its seconds.
Run = Callable[[], object]
Clock = Callable[[], float]
#: Prepares our run and the baseline.
Row = Callable[[], tuple[Run, Run]]


def run_scan(name: str, batch: int, length: int) -> tuple[Run, Run]:
    """Return a scan and the loop of the published code: forward and backward."""
    benchmark = scan.Benchmark("cpu", 0.0)
    ours, published, leaves = scan.mixture_problem(benchmark, batch, length)
    pairs = {"mixture": (ours, leaves), "token": scan.token_problem(benchmark, batch, length)}
    if name == "dense":
        A, b = benchmark.draw(batch, length, scan.N, scan.N, scale=0.1), benchmark.draw(batch, length, scan.N)
        leaves = {"A": A.requires_grad_(), "b": b.requires_grad_()}
        pairs["dense"] = (lambda inputs: ops.dense_scan(inputs["A"], inputs["b"])[0].sum(), leaves)

        def published(inputs: scan.Leaves) -> Tensor:
            return baselines.dense_loop(inputs["A"], inputs["b"]).sum()

    loss, own_leaves = pairs[name]
    scan.check(name, loss, own_leaves, published if name != "token" else None)
    return (
        lambda: torch.autograd.grad(loss(own_leaves), list(own_leaves.values())),
        lambda: torch.autograd.grad(published(leaves), list(leaves.values())),
    )


def run_model(name: str) -> tuple[Run, Run]:
    """Return a training step of a model and one of its eager baseline."""
    engine = models.new_engine(models.run_config(name), 1, CPU)
    baseline = models.Baseline(engine)
    loss_function = next(iter(baseline.loss_functions().values()))
    return lambda: engine.advance(1), lambda: baseline.train(loss_function, 1)


def run_evaluation() -> tuple[Run, Run]:
    """Return the evaluation of lengths 1..500 and that of 64 strings of length 64 as published."""
    model = new_model(train.paper_config(0))
    strings, _ = sample_in_python(64, 64, train.STATE_INDEX, random.Random(0))
    inputs, loop = torch.nn.functional.one_hot(torch.tensor(strings), 2).float(), train.PublishedModel(model)
    return lambda: sdssm.evaluate(model, task=train.TASK, max_length=500, device=CPU), lambda: loop(inputs)


def run_start() -> tuple[Run, Run]:
    """Return `sdssm train a5` with one step, in a new process, and the import of torch alone."""

    def start(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            start("-m", "sdssm", "train", "a5", "--steps", "1", "--quiet", "--device", "cpu", "--out", f"{folder}/a5")

    return ours, lambda: start("-c", "import torch")


ROWS: dict[str, Row] = {
    "token_scan, batch 128, L 40": lambda: run_scan("token", 128, 40),
    "mixture_scan, batch 16, L 64": lambda: run_scan("mixture", 16, 64),
    "dense_scan, batch 4, L 128": lambda: run_scan("dense", 4, 128),
    **{f"training step, {name}": lambda name=name: run_model(name) for name in ("sd-ssm", "rnn", "s4", "delta-net")},  # type: ignore[misc]
    "evaluation, lengths 1..500": run_evaluation,
    "sdssm train a5 to its end, 1 step": run_start,
}


def processor_seconds() -> float:
    """Return the processor time of this process and of the processes that it waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measure_ratio(ours: Run, baseline: Run, clock: Clock = processor_seconds) -> float:
    """Return our least time over the least time of the baseline; the two run in turn."""

    def seconds(run: Run) -> float:
        start = clock()
        run()
        return clock() - start

    least_ours = least_baseline = math.inf
    ours()  # compiles the kernels
    baseline()
    spent, pairs = 0.0, 0
    while pairs < PAIRS or spent < SECONDS:
        own, other = seconds(ours), seconds(baseline)
        least_ours, least_baseline = min(least_ours, own), min(least_baseline, other)
        spent, pairs = spent + own + other, pairs + 1
    return least_ours / least_baseline


def measure_row(row: Row, stored: float | None, clock: Clock = processor_seconds) -> float:
    """Return the ratio of a row; one that fails is measured again, and the least ratio counts."""
    ours, baseline = row()
    ratio = math.inf
    for _ in range(ATTEMPTS):
        ratio = min(ratio, measure_ratio(ours, baseline, clock))
        if stored is None or ratio <= stored * LIMIT:
            break
    return ratio


def check_rows(
    rows: Mapping[str, Row], stored: Mapping[str, float], clock: Clock = processor_seconds
) -> tuple[dict[str, float], list[str]]:
    """Measure the rows and print a table; return the ratios, and the names of the rows that fail."""
    ratios, failed = dict[str, float](), list[str]()
    print(f"{'row':36s}{'stored':>10s}{'now':>10s}{'change':>9s}  verdict")
    for name, row in rows.items():
        expected = stored.get(name)
        ratio = ratios[name] = measure_row(row, expected, clock)
        change, verdict = "", "not stored; use --update"
        if expected is not None:
            change, verdict = f"{ratio / expected - 1:+.0%}", "ok" if ratio <= expected * LIMIT else "SLOWER"
        if verdict != "ok":
            failed.append(name)
        print(f"{name:36s}{expected or math.nan:10.4f}{ratio:10.4f}{change:>9s}  {verdict}", flush=True)
    return ratios, failed


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, here and in the processes that are started."""
    before, variable = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        torch.set_num_threads(before)
        del os.environ["OMP_NUM_THREADS"]
        if variable is not None:
            os.environ["OMP_NUM_THREADS"] = variable


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", metavar="TEXT", default=[""], help="only rows whose name has such a text")
    parser.add_argument("--update", action="store_true", help="store the ratios of this run")
    options = parser.parse_args(argv)
    document = json.loads(STORED.read_text()) if STORED.exists() else {"ratios": {}}
    stored: dict[str, float] = document["ratios"]
    rows = {name: row for name, row in ROWS.items() if any(text in name for text in options.rows)}
    if not rows:
        parser.error(f"no row has {options.rows} in its name; rows: {', '.join(ROWS)}")
    start = time.perf_counter()
    with one_thread():
        ratios, failed = check_rows(rows, {} if options.update else stored)
    print(f"{time.perf_counter() - start:.0f} s")
    if options.update:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "cpu": platform.machine()}
        kept = {name: ratio for name, ratio in {**stored, **ratios}.items() if name in ROWS}
        text = json.dumps({"versions": versions, "ratios": {name: round(kept[name], 5) for name in kept}}, indent=1)
        STORED.write_text(text + "\n")
        return 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
