"""Time the evaluation of all runs of `default` and `beyond`: `python -m benchmarks.evaluation [--device cuda]`.

224 models of 29 automata are trained for a few steps only, because a model takes the same time whether it has learned
or not. Then every one is evaluated as `sdssm reproduce` does: at all lengths up to 500 or 600, and at 5,000 and
50,000, on uniform, balanced and covering strings. Runs of a task are evaluated side by side, tasks one after the other.
The table has the seconds of each task, and how many of them the host took for the tables from which strings are drawn.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sdssm.devices import device_name
from sdssm.experiments import Plan, Selection, evaluate_plan, get_spec, make_plans, merge_plans, run_plan
from sdssm.tasks import walk_tables

SPECS = ("default", "beyond")
#: The share of the 40,000 steps that models are trained for.
BUDGET = 0.0005


class TableTime:
    """The seconds that the tables of strings took since the last call of `take`."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._build = walk_tables._cached_walk
        walk_tables._cached_walk = self._timed  # type: ignore[assignment]

    def _timed(self, *args: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._build(*args)
        finally:
            self._seconds += time.perf_counter() - start

    def take(self) -> float:
        """Return the seconds and start again from 0."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def evaluate(plan: Plan, device: str, tables: TableTime) -> float:
    """Evaluate the runs of a plan, print a row for each task, and return the seconds."""
    tasks = [run.task.name for run in plan.selected_runs()]
    counts = {task: tasks.count(task) for task in dict.fromkeys(tasks)}
    start = time.perf_counter()
    names, before, left = iter(counts), start, 0
    files_of_a_run = 2  # every length, and listed lengths

    def on_evaluated(done: int, total: int) -> None:
        nonlocal before, left
        if left == 0:
            left = files_of_a_run * counts[task := next(names)]
            print(f"  {task:20s} {counts[task]:4d} models", end="", flush=True)
        left -= 1
        if left == 0:
            now = time.perf_counter()
            print(f"  {now - before:7.2f} s, of these {tables.take():5.2f} s for tables", flush=True)
            before = now

    evaluate_plan(plan, device, on_evaluated=on_evaluated)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, help="runs of each task (default: those of the experiments)")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these tasks")
    options = parser.parse_args()
    print(f"{device_name(options.device)}, torch {torch.__version__}, Python {platform.python_version()}")
    tables, total = TableTime(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        selection = Selection(seeds=options.seeds, tasks=options.tasks, budget=BUDGET)
        plans = make_plans([get_spec(name) for name in SPECS], Path(folder), selection)
        plans = [plan for plan in plans if plan.selected_runs()]
        start = time.perf_counter()
        run_plan(merge_plans(plans), options.device)
        print(f"training {len(merge_plans(plans).runs)} models for a few steps: {time.perf_counter() - start:.1f} s")
        for plan in plans:
            print(f"{plan.spec.name}, {plan.spec.title}")
            seconds = evaluate(plan, options.device, tables)
            print(f"  {'all':20s} {len(plan.selected_runs()):4d} models  {seconds:7.2f} s")
            total += seconds
    print(f"evaluation in all: {total:.2f} s")


if __name__ == "__main__":
    main()
