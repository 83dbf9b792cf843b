"""Training the runs of a plan on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from sdssm.devices import DeviceLike, resolve_devices
from sdssm.experiments.planning.estimates import stored_seconds
from sdssm.experiments.planning.plan import TrainingPlan
from sdssm.experiments.planning.remaining import unfinished_runs
from sdssm.training.progress import Progress
from sdssm.training.trainer import train_runs


def run_plan(
    plan: TrainingPlan, device: DeviceLike | Sequence[DeviceLike] = "auto", progress: Progress | None = None
) -> None:
    """Train the selected runs of a plan, on one device or several. Finished runs are left alone, others resume."""
    if unfinished_runs(plan):
        # Ended runs are passed too: a group resumes with as many replicas as it was started with.
        devices = resolve_devices(device)
        train_runs(
            plan.out,
            plan.trainings(),
            device=devices,
            resume=True,
            progress=progress,
            until=plan.until,
            seconds=stored_seconds(plan, str(devices[0])) if len(devices) > 1 else None,
        )
