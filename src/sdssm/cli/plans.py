"""Output of the commands that train experiments: the plans of a dry run, and progress."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.output import print_table

if TYPE_CHECKING:
    from sdssm.experiments import Plan
    from sdssm.experiments.execution.evaluations import EvaluationCallback
    from sdssm.experiments.planning.estimates import GroupEstimate


def show_plans(plans: Sequence[Plan], device: str) -> None:
    """Print the state of each plan, what is left to train in all of them, and an estimate of the time."""
    from sdssm.experiments import merge_plans
    from sdssm.experiments.execution.evaluations import missing_evaluations
    from sdssm.experiments.planning.estimates import estimate_plan

    shown = set[Path]()
    for plan in plans:
        runs = plan.selected_runs()
        counts = ", ".join(f"{count} {state}" for state, count in Counter(run.status for run in runs).items())
        elsewhere, above = sum(run.reused for run in runs), sum(run.folder in shown for run in runs)
        counts += f" ({elsewhere} of them elsewhere)" if elsewhere else ""
        counts += f"; {above} of them are listed above" if above else ""
        print(f"{plan.spec.title}\n{len(runs)} runs: {counts}\n")
        shown |= {run.folder for run in runs}
    if groups := estimate_plan(merge_plans(plans), device):
        _show_groups(groups, device)
        return
    left = sum(
        len(missing_evaluations(run.folder, run.task, plan.spec.evaluate))
        for plan in plans
        for run in plan.selected_runs()
    )
    print("Nothing is left to train" + (f"; {left} evaluations are." if left else ", or to evaluate."))


def _show_groups(groups: Sequence[GroupEstimate], device: str) -> None:
    from sdssm.devices import resolve_device
    from sdssm.training.queue import GROUPS_AT_ONCE

    rows = [[group.name, str(len(group.runs)), f"{group.steps:,}", _format_duration(group.seconds)] for group in groups]
    print_table(["side by side", "runs", "steps left", "about"], rows, right=("runs", "steps left", "about"))
    known = [group.seconds for group in groups if group.seconds is not None]
    bound = "at least " if len(known) < len(groups) else "about "
    print(f"\nTraining one group after the other: {bound}{_format_duration(sum(known))}; nothing was started.")
    if resolve_device(device).type == "cuda" and len(groups) > 1:
        print(f"On a GPU up to {GROUPS_AT_ONCE['cuda']} groups train at once, which may take less time.")


def _format_duration(seconds: float | None) -> str:
    """Format a duration as seconds, or as hours and minutes.

    >>> _format_duration(42), _format_duration(4000), _format_duration(None)
    ('42 s', '1 h 6 min', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(int(seconds // 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def evaluation_counter(options: argparse.Namespace) -> EvaluationCallback | None:
    """Return a callback that shows how many runs were evaluated; None if quiet or not on a terminal."""
    return None if options.quiet or not sys.stderr.isatty() else _show_count


def _show_count(done: int, total: int) -> None:
    print(f"\r{done} of {total} evaluated" + ("\n" if done == total else ""), end="", file=sys.stderr, flush=True)


@contextmanager
def report_interrupt(options: argparse.Namespace) -> Iterator[None]:
    """On Ctrl-C, print on standard error how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"sdssm: stopped; to continue, run the same command again: {options.typed}", file=sys.stderr)
        raise
