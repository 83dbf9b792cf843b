"""What a plan has still to train, and how far its runs are."""

from __future__ import annotations

from sdssm.experiments.planning.plan import PlannedRun, TrainingPlan
from sdssm.runs import FINAL_STATUSES, RunFolder
from sdssm.training.planning import group_runs
from sdssm.training.schedules import last_step


def unfinished_runs(plan: TrainingPlan) -> list[PlannedRun]:
    """Return the runs that have not reached the share of steps that the plan trains them for."""
    running = [run for run in plan.selected_runs() if run.status not in FINAL_STATUSES]
    return [run for run in running if plan.until >= 1 or saved_step(run) < last_step(run.config.train, plan.until)]


def training_groups(plan: TrainingPlan) -> list[list[PlannedRun]]:
    """Return the groups of runs that train side by side, without groups that have nothing left to train."""
    unfinished = {run.folder for run in unfinished_runs(plan)}
    groups = group_runs(plan.own_runs(), lambda run: (run.config, run.task))
    return [group for group in groups if any(run.folder in unfinished for run in group)]


def saved_step(run: PlannedRun) -> int:
    """Return the step of the last checkpoint of a run; 0 if it was not started."""
    return 0 if run.status == "missing" else RunFolder.open(run.folder).step
