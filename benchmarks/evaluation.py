"""Time the evaluation of all runs of `default` and `beyond`: `python -m benchmarks.evaluation [--device cuda]`.

224 models of 29 automata are trained for a few steps only, because a model takes the same time whether it has learned
or not. Then every one is evaluated as `sdssm reproduce` does: at all lengths up to 500 or 600, and at 5,000 and
50,000, on uniform, balanced and covering strings. Runs of a task are evaluated side by side, on a GPU several tasks at
the same time.

A row is printed when a task ends: from when to when it ran, in seconds since the start, and what its threads spent
their seconds on: tables from which strings are drawn, drawing, loading of models, samples of states, results, and
reading, which is all the rest: launching kernels, and waiting for them and for other threads. The last row has the
processor time of these threads.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from threading import Lock, local
from typing import Any

import torch

from sdssm.devices import device_name
from sdssm.evaluation import evaluation as evaluation_module
from sdssm.evaluation import measurement
from sdssm.evaluation.prepared import PreparedRun
from sdssm.experiments import Plan, Selection, evaluate_plan, get_spec, make_plans, merge_plans, run_plan
from sdssm.experiments.execution import evaluations
from sdssm.experiments.execution.evaluation_files import EvaluationFile
from sdssm.runs import RunFolder
from sdssm.tasks.positions import PositionSymbols
from sdssm.tasks.stream import StringStream

SPECS = ("default", "beyond")
#: The share of the 40,000 steps that models are trained for.
BUDGET = 0.0005
#: Where each part of an evaluation is spent: objects and their functions. A part within another one is part of that.
PARTS: dict[str, Sequence[tuple[Any, str]]] = {
    "tables": [(StringStream, "__init__")],
    "drawing": [(StringStream, "draw"), (PositionSymbols, "draw")],
    "models": [(evaluation_module, "prepare")],
    "states": [(evaluation_module, "sample_states_of_runs")],
    "results": [(measurement, "_make_result"), (PreparedRun, "finish")],
}
READING = "reading"


class EvaluationTimes:
    """The seconds and the processor seconds of each part of the evaluations of each task, in all threads."""

    def __init__(self, counts: Counter[str]) -> None:
        self.models, self.started = counts, time.perf_counter()
        self.seconds = defaultdict[str, Counter[str]](Counter)
        self.processor = Counter[str]()
        self._first = dict[str, float]()
        self._left = Counter(counts)
        self._thread, self._lock = local(), Lock()

    def watch(self) -> Callable[[], None]:
        """Measure all parts from now on, until the function that is returned is called."""
        originals = [(owner, name, getattr(owner, name)) for part in PARTS.values() for owner, name in part]
        for part, functions in PARTS.items():
            for owner, name in functions:
                setattr(owner, name, self._timed(part, getattr(owner, name)))
        evaluate_group = evaluations.evaluate_group
        setattr(evaluations, "evaluate_group", self._timed_group(evaluate_group))  # noqa: B010  # as above

        def stop() -> None:
            for owner, name, function in (*originals, (evaluations, "evaluate_group", evaluate_group)):
                setattr(owner, name, function)

        return stop

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            if getattr(self._thread, "part", READING) != READING or not hasattr(self._thread, "task"):
                return function(*arguments, **options)
            self._change(part)
            try:
                return function(*arguments, **options)
            finally:
                self._change(READING)

        return timed

    def _timed_group(self, function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def timed(group: Sequence[EvaluationFile], *arguments: Any, **options: Any) -> None:
            thread = self._thread
            thread.task, thread.part = RunFolder.open(group[0][0]).config.task, READING
            thread.since = time.perf_counter(), time.thread_time()
            with self._lock:
                self._first.setdefault(thread.task, time.perf_counter())
            try:
                function(group, *arguments, **options)
            finally:
                self._change(READING)
            with self._lock:
                self._left[thread.task] -= len(group)
                if not self._left[thread.task]:
                    self._print(thread.task)
            del thread.task

        return timed

    def _change(self, part: str) -> None:
        """Count the time since the last change, and start another part."""
        thread, now = self._thread, (time.perf_counter(), time.thread_time())
        with self._lock:
            self.seconds[thread.task][thread.part] += now[0] - thread.since[0]
            self.processor[thread.part] += now[1] - thread.since[1]
        thread.part, thread.since = part, now

    def _print(self, task: str) -> None:
        first, last = (moment - self.started for moment in (self._first[task], time.perf_counter()))
        print(f"{format_row(task, self.models[task] // 2, f'{first:.1f}-{last:.1f}', self.seconds[task])}", flush=True)

    def print_totals(self, seconds: float) -> None:
        """Print the sums over all tasks."""
        models, total = sum(self.models.values()) // 2, sum(self.seconds.values(), Counter())
        print(format_row("all", models, f"{seconds:.2f}", total))
        print(format_row("processor", models, "", self.processor), flush=True)


def format_row(name: str, models: int | str, times: str, parts: Counter[str] | None = None) -> str:
    """Format a row of the table: the seconds of each part, or their names."""
    cells = [f"{part:>8s}" if parts is None else f"{parts[part]:8.2f}" for part in (*PARTS, READING)]
    return f"  {name:20s} {models:>6} {times:>13s} {' '.join(cells)}"


def evaluate(plan: Plan, device: str) -> float:
    """Evaluate the runs of a plan, print a row for each task, and return the seconds."""
    files_of_a_run = 2  # every length, and listed lengths
    times = EvaluationTimes(Counter(run.task.name for run in plan.selected_runs() for _ in range(files_of_a_run)))
    print(format_row("task", "models", "from-to"))
    stop = times.watch()
    try:
        evaluate_plan(plan, device)
    finally:
        stop()
    seconds = time.perf_counter() - times.started
    times.print_totals(seconds)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, help="runs of each task (default: those of the experiments)")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these tasks")
    parser.add_argument(
        "--in-flight",
        type=int,
        default=evaluations.MOST_TASKS,
        help="tasks at the same time on a GPU (default: %(default)s)",
    )
    options = parser.parse_args()
    evaluations.MOST_TASKS, evaluations.STREAMS = options.in_flight, 2 * options.in_flight
    print(f"{device_name(options.device)}, torch {torch.__version__}, Python {platform.python_version()}")
    total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        selection = Selection(seeds=options.seeds, tasks=options.tasks, budget=BUDGET)
        plans = make_plans([get_spec(name) for name in SPECS], Path(folder), selection)
        plans = [plan for plan in plans if plan.selected_runs()]
        start = time.perf_counter()
        run_plan(merge_plans(plans), options.device)
        print(f"training {len(merge_plans(plans).runs)} models for a few steps: {time.perf_counter() - start:.1f} s")
        for plan in plans:
            print(f"{plan.spec.name}, {plan.spec.title}")
            total += evaluate(plan, options.device)
    print(f"evaluation in all: {total:.2f} s")


if __name__ == "__main__":
    main()
