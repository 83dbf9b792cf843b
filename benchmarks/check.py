"""Check that nothing has become slower: `python -m benchmarks.check [--update] [--rows NAME ...]`, a minute on a CPU.

Each row is our time over that of a baseline in the same run, in processor time on one thread, so that other programs
matter little. Each row has a process of its own, in which both run in turn, and the least time of each counts. It is
measured until the three least times of both agree within 1 %, or for two seconds. A row fails if its ratio is more than
15 % above the stored one (benchmarks/check.json) in each of three attempts, each twice as long as the one before; then
the exit code is 1. `--update` measures three times and stores the medians: after a change that is meant to move them,
and on a new machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

import sdssm
from benchmarks import models, scan, train
from sdssm import ops
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.training.engine import new_model

STORED = Path(__file__).with_name("check.json")
#: The largest ratio that passes, relative to the stored one.
LIMIT = 1.15
#: Seconds of processor time for the first attempt, rounds at least, and attempts before a row fails.
SECONDS, ROUNDS, ATTEMPTS = 2.0, 3, 3
#: Runs at most in a round; the least times are certain if `AGREEING` of at least `RUNS` are within this factor.
MOST_RUNS, AGREEING, RUNS, AGREEMENT = 20, 3, 6, 1.01
#: How often `--update` measures each row; it stores the median.
UPDATES = 3
#: The evaluation of the row of that name: its greatest length, and the defaults of `sdssm.evaluate`.
LONGEST, EVALUATION_STRINGS, EVALUATION_SEED = 500, 512, 1
CPU = torch.device("cpu")
#: Something to time, and a clock that counts its seconds.
Run = Callable[[], object]
Clock = Callable[[], float]
#: Prepares our run and the baseline.
Row = Callable[[], tuple[Run, Run]]
#: Returns the ratio of the row of a name, from measurements of so many seconds.
Measure = Callable[[str, float], float]


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
            x, states = torch.zeros_like(inputs["b"][:, 0]), []
            # Not `A[:, t]`: the gradient of an index fills a tensor as large as A at each step, whose time varies.
            for A_t, b_t in zip(inputs["A"].unbind(1), inputs["b"].unbind(1), strict=True):
                x = (A_t @ x[..., None])[..., 0] + b_t
                states.append(x)
            return torch.stack(states, 1).sum()

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
    """Return the evaluation of lengths 1..500, and a plain loop that reads and counts on the same strings."""
    model = new_model(train.paper_config(0))

    def ours() -> list[int]:
        evaluation = sdssm.evaluate(model, task=train.TASK, max_length=LONGEST, device=CPU)
        return [round(accuracy * EVALUATION_STRINGS / 100) for accuracy in evaluation.runs[0].accuracy]

    def baseline() -> list[int]:
        return count_in_loop(model, EvaluationStrings(train.TASK, EVALUATION_STRINGS, EVALUATION_SEED, CPU))

    if ours() != baseline():
        raise scan.WrongResultError("sdssm.evaluate and the plain loop count differently; nothing is timed")
    return ours, baseline


@torch.no_grad()
def count_in_loop(model: sdssm.TokenModel, strings: EvaluationStrings) -> list[int]:
    """Return how many strings are classified correctly after each symbol, with a loop over symbols in plain torch."""
    [(tokens, labels)] = strings.blocks(LONGEST)
    A, b = model.symbol_matrices(), model.input_matrix.T  # (V, N, N), (V, N)
    x, counts = b.new_zeros(len(tokens), b.shape[-1]), list[int]()
    for token, label in zip(tokens.unbind(1), labels.unbind(1), strict=True):
        products = torch.einsum("vij,bj->bvi", A, x)  # one for each symbol: gathering a matrix per string costs more
        x = products[torch.arange(len(x)), token] + b[token]
        counts.append(int((model.logits(x).argmax(-1) == label).sum()))
    return counts


def run_start() -> tuple[Run, Run]:
    """Return `sdssm train a5` with one step, in a new process, and the import of torch alone."""

    # With byte code, as a user has it: compiling the Python files takes longer than what is measured here.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)

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


def measure_ratio(ours: Run, baseline: Run, length: float = SECONDS, clock: Clock = processor_seconds) -> float:
    """Return our least time over the least time of the baseline.

    The two run in turn, the shorter one several times, for `length` seconds or until the least times of both are
    certain.
    """
    own, other = list[float](), list[float]()
    ours()  # compiles the kernels
    baseline()
    spent, rounds = 0.0, 0
    while rounds < ROUNDS or (spent < length and not (spent >= length / 4 and is_settled(own) and is_settled(other))):
        for run, times, others in ((ours, own, other), (baseline, other, own)):
            # As long as one run of the other, so that as much time is spent on the noise of each.
            count = round(min(others) / min(times)) if times and others and min(times) > 0 else 1
            for _ in range(min(max(count, 1), MOST_RUNS)):
                start = clock()
                run()
                times.append(clock() - start)
                spent += times[-1]
        rounds += 1
    return min(own) / min(other)


def is_settled(times: Sequence[float]) -> bool:
    """Whether the least times agree, so that a longer measurement would hardly find a smaller one."""
    least = sorted(times)[:AGREEING]
    return len(times) >= RUNS and least[-1] <= least[0] * AGREEMENT


def measure_row(name: str, length: float) -> float:
    """Return the ratio of a row, measured in this process."""
    with one_thread():
        return measure_ratio(*ROWS[name](), length)


def measure_in_process(name: str, length: float) -> float:
    """Return the ratio of a row, measured in a process of its own.

    In one process for all, a row depends on those before it: a training step keeps freed memory in the allocator, after
    which the evaluation took 0.6 times as long. It is a fork of this process, which has imported everything and
    computed nothing.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(measure_row, name, length).result()
        except Exception as error:
            raise SystemExit(f"the row {name!r} cannot be measured: {error}") from error


def check_rows(names: Iterable[str], stored: Mapping[str, float], measure: Measure) -> list[str]:
    """Measure the rows and print a table; return the names of the rows that fail.

    A row that fails is measured again after the others, in another process: what slows a row down without a change of
    the code, such as another program, or where its memory lies, differs by then, and a longer measurement finds more
    undisturbed moments. The least of its ratios counts.
    """
    ratios, failed, waiting = dict[str, float](), list[str](), list(names)
    print(f"{'row':36s}{'stored':>10s}{'now':>10s}{'change':>9s}  verdict")
    for attempt in range(ATTEMPTS):
        for name in waiting:
            expected = stored.get(name)
            ratio = ratios[name] = min(ratios.get(name, math.inf), measure(name, SECONDS * 2**attempt))
            change, verdict = "", "not stored; use --update"
            if expected is not None:
                change, verdict = f"{ratio / expected - 1:+.0%}", "ok" if ratio <= expected * LIMIT else "SLOWER"
            failed = [other for other in failed if other != name] + ([name] if verdict != "ok" else [])
            again = ", measured again" if verdict == "SLOWER" and attempt < ATTEMPTS - 1 else ""
            print(f"{name:36s}{expected or math.nan:10.4f}{ratio:10.4f}{change:>9s}  {verdict}{again}", flush=True)
        waiting = [name for name in failed if name in stored]
    return failed


def measure_medians(names: Sequence[str], measure: Measure) -> dict[str, float]:
    """Measure the rows in turn, `UPDATES` times, and return the median ratio of each."""
    rounds = [{name: measure(name, SECONDS) for name in names} for _ in range(UPDATES)]
    for name in names:
        print(f"{name:36s}" + "".join(f"{ratios[name]:10.4f}" for ratios in rounds))
    return {name: statistics.median(ratios[name] for ratios in rounds) for name in names}


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


def main(argv: list[str] | None = None, measure: Measure = measure_in_process) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", metavar="TEXT", default=[""], help="only rows whose name has such a text")
    parser.add_argument("--update", action="store_true", help="store the medians of three measurements")
    options = parser.parse_args(argv)
    document = json.loads(STORED.read_text()) if STORED.exists() else {"ratios": {}}
    stored: dict[str, float] = document["ratios"]
    names = [name for name in ROWS if any(text in name for text in options.rows)]
    if not names:
        parser.error(f"no row has {options.rows} in its name; rows: {', '.join(ROWS)}")
    start = time.perf_counter()
    if not options.update:
        failed = check_rows(names, stored, measure)
        print(f"{time.perf_counter() - start:.0f} s")
        return 1 if failed else 0
    ratios = {**stored, **measure_medians(names, measure)}
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cpu": platform.machine()}
    kept = {name: round(ratios[name], 5) for name in ROWS if name in ratios}
    STORED.write_text(json.dumps({"versions": versions, "ratios": kept}, indent=1) + "\n")
    print(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
