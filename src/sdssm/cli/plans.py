"""Output of the commands that train experiments: the plans of a dry run, and progress."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.output import print_table, print_text
from sdssm.devices import check_device_names
from sdssm.files import format_path
from sdssm.formatting import UNKNOWN, count_of, format_time_span

if TYPE_CHECKING:
    from sdssm.experiments import Plan
    from sdssm.experiments.planning.estimates import GroupEstimate


def show_plans(plans: Sequence[Plan], options: argparse.Namespace) -> None:
    """Print the state of each plan, what is left to train in all of them, and an estimate of the time."""
    from sdssm.experiments import merge_plans
    from sdssm.experiments.execution.evaluation_files import missing_evaluations
    from sdssm.experiments.planning.estimates import FILE, estimate_plan

    shown = set[Path]()
    for plan in plans:
        runs = plan.selected_runs()
        counts = ", ".join(f"{count} {state}" for state, count in Counter(run.status for run in runs).items())
        elsewhere, above = sum(run.reused for run in runs), sum(run.folder in shown for run in runs)
        counts += f" ({elsewhere} of them elsewhere)" if elsewhere else ""
        counts += f"; {above} of them are listed above" if above else ""
        print(f"{plan.spec.title}\n{count_of(len(runs), 'run')}: {counts}\n")
        shown |= {run.folder for run in runs}
    merged = merge_plans(plans)
    devices = check_device_names(options.device)
    if groups := estimate_plan(merged, devices[0], progress=not options.quiet):
        _show_groups(groups, devices, merged.out / FILE)
        return
    left = sum(
        len(missing_evaluations(run.folder, run.task, plan.spec.evaluate))
        for plan in plans
        for run in plan.selected_runs()
    )
    print("Nothing is left to train" + (f"; {left} evaluations are." if left else ", or to evaluate."))


def _show_groups(groups: Sequence[GroupEstimate], devices: Sequence[str], stored: Path) -> None:
    from sdssm.devices import device_name, resolve_device
    from sdssm.experiments.planning.estimates import TIME_LIMIT
    from sdssm.training.queue import GROUPS_AT_ONCE

    rows = [
        [
            group.name,
            str(len(group.runs)),
            f"{group.steps:,}",
            UNKNOWN if group.range is None else format_time_span(*group.range),
        ]
        for group in groups
    ]
    print_table(["side by side", "runs", "steps left", "time"], rows, right=("runs", "steps left", "time"))
    ranges = [group.range for group in groups if group.range is not None]
    unmeasured = len(groups) - len(ranges)
    total = "unknown"
    if ranges:
        low, high = (sum(ends) for ends in zip(*ranges, strict=True))
        total = format_time_span(low) if unmeasured else format_time_span(low, high)
        total = f"{'more than' if unmeasured else 'about'} {total}"
    print()
    print_text(f"Training one group after the other, without evaluation: {total}; nothing was started.")
    if len(devices) > 1 and len(groups) > 1:
        print_text(f"{', '.join(devices)} share the groups: the longest start first.")
    if resolve_device(devices[0]).type == "cuda" and len(groups) > 1:
        print_text(f"On a GPU up to {GROUPS_AT_ONCE['cuda']} groups train at once, which may take less time.")
    name, file = device_name(devices[0]), format_path(stored)
    print_text(f"Basis: a few training steps of each group, timed on {name} and stored in {file}.")
    if unmeasured:
        print_text(
            f"{UNKNOWN}: not measured, because a dry run measures for at most {TIME_LIMIT:g} s; run it again to "
            "measure more."
        )


@contextmanager
def report_interrupt(options: argparse.Namespace) -> Iterator[None]:
    """On Ctrl-C, print on standard error how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"sdssm: stopped; to continue, run the same command again: {options.typed}", file=sys.stderr)
        raise
