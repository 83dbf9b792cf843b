"""Estimates of training time, from timing a few steps of every group of runs that train side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from sdssm.devices import device_name, resolve_device
from sdssm.experiments.json_files import read_json
from sdssm.experiments.planning.plan import PlannedRun, TrainingPlan
from sdssm.experiments.planning.remaining import saved_step, training_groups
from sdssm.files import write_atomic
from sdssm.runs import FINAL_STATUSES
from sdssm.training.engine import TrainingEngine, group_key

#: Seconds that may be spent on measuring; no measurement starts later.
TIME_LIMIT = 30.0
#: The least and the most seconds spent on one group.
LEAST_SECONDS, MOST_SECONDS = 0.2, 2.0
#: File below the plan's `out` in which measurements are stored.
FILE = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class GroupEstimate:
    """Runs that train side by side, and the time that they need alone; None if it was not measured."""

    runs: Sequence[PlannedRun]
    steps: int  #: steps left to train
    seconds: float | None

    @property
    def name(self) -> str:
        """The models and tasks of the group."""
        models = dict.fromkeys(run.config.model.name for run in self.runs)
        tasks = dict.fromkeys(run.task.name for run in self.runs)
        return f"{', '.join(models)} on {', '.join(tasks)}"


def estimate_plan(plan: TrainingPlan, device: str = "auto", limit: float = TIME_LIMIT) -> list[GroupEstimate]:
    """Return the groups that a plan has still to train, with the time of each on this device.

    Measurements are stored in `calibration.json` in the folder of the plan and used again. At most about `limit`
    seconds are spent on new ones. Diverged runs stay in their group, as they do in training, and count.
    """
    groups = [[run for run in group if run.status != "finished"] for group in training_groups(plan)]
    path = plan.out / FILE
    known = read_json(path) or {}
    device_label, started, is_changed = device_name(device), monotonic(), False
    keys = [_group_key(device_label, group_key(runs[0].config, runs[0].task), len(runs)) for runs in groups]
    unmeasured = sum(key not in known for key in keys)
    estimates = []
    for key, runs in zip(keys, groups, strict=True):
        if key not in known and monotonic() - started < limit:
            share = (limit - (monotonic() - started)) / max(unmeasured, 1)
            known[key] = _seconds_a_step(runs, device, min(MOST_SECONDS, max(LEAST_SECONDS, share)))
            unmeasured, is_changed = unmeasured - 1, True
        steps = max(run.config.train.steps - saved_step(run) for run in runs if run.status not in FINAL_STATUSES)
        step_seconds = known.get(key)
        seconds = None if step_seconds is None else step_seconds * steps
        estimates.append(GroupEstimate(runs=runs, steps=steps, seconds=seconds))
    if is_changed:
        _store(path, known)
    return estimates


def budget_for(groups: Sequence[GroupEstimate], seconds: float) -> float:
    """Return the share of their steps, at most 1, that groups complete in a time one after the other.

    It is rounded to two digits, as estimates are not more precise. A group that was not measured is assumed to need as
    much time for a step of a run as the others.

    >>> budget_for([GroupEstimate(runs=[], steps=1000, seconds=60.0)], 20.0)
    0.33
    >>> budget_for([], 20.0)
    1.0
    """
    known = [(group.seconds, len(group.runs) * group.steps) for group in groups if group.seconds is not None]
    if not known:
        return 1.0
    total_seconds, total_steps = (sum(column) for column in zip(*known, strict=True))
    other_steps = sum(len(group.runs) * group.steps for group in groups if group.seconds is None)
    share = seconds / (total_seconds + total_seconds / max(total_steps, 1) * other_steps)
    return min(1.0, float(f"{share:.1e}"))


def _group_key(device: str, form: Any, replicas: int) -> str:
    """Return a key for the time of one step: the device, and a hash of everything that affects a step."""
    tasks, model, train = form
    description = repr((tasks, model, train.batch, train.clip, replicas))
    return f"{device} {hashlib.sha256(description.encode()).hexdigest()[:16]}"


def _seconds_a_step(runs: Sequence[PlannedRun], device: str, seconds: float) -> float:
    """Return the mean time of a step over as many steps as fit into `seconds`, after warm-up steps."""
    target = resolve_device(device)
    engine = TrainingEngine([run.task for run in runs], [run.config for run in runs], target)
    chunk = 10 if target.type == "cuda" else 1  # a GPU trains ten steps per launch
    last = min(run.config.train.steps for run in runs)
    engine.advance(min(chunk, last))
    engine.wait()
    started, first = monotonic(), engine.step
    while engine.step < last and (engine.step == first or monotonic() - started < seconds):
        engine.advance(min(chunk, last - engine.step))
        engine.wait()
    elapsed = monotonic() - started
    if target.type == "cuda":
        torch.cuda.empty_cache()
    return elapsed / max(engine.step - first, 1)


def _store(path: Path, known: dict[str, Any]) -> None:
    """Write the measurements; if that fails they are only measured again next time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
