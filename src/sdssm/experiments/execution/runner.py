"""Training the runs of a plan on this machine."""

from __future__ import annotations

import torch

from sdssm.experiments.planning.plan import TrainingPlan
from sdssm.experiments.planning.remaining import unfinished_runs
from sdssm.training.progress import Progress
from sdssm.training.trainer import train_runs


def run_plan(plan: TrainingPlan, device: str | torch.device = "auto", progress: Progress | None = None) -> None:
    """Train the selected runs of a plan. Finished runs are left alone, and interrupted ones resume."""
    if unfinished_runs(plan):
        # Ended runs are passed too: a group resumes with as many replicas as it was started with.
        train_runs(plan.out, plan.trainings(), device=device, resume=True, progress=progress, until=plan.until)
