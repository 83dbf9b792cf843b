"""Estimates of training time, from timing a few steps of every group of runs that train side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from sdssm.devices import device_name, resolve_device
from sdssm.experiments.json_files import read_json
from sdssm.experiments.planning.fingerprints import IGNORED_SETTINGS
from sdssm.experiments.planning.plan import PlannedRun, TrainingPlan
from sdssm.experiments.planning.remaining import saved_step, training_groups
from sdssm.files import write_atomic
from sdssm.formatting import format_setting
from sdssm.progress import ProgressOption, report_progress
from sdssm.runs import FINAL_STATUSES
from sdssm.runs.schema import Settings
from sdssm.training.engine import TrainingEngine, group_key

#: Seconds that may be spent on measuring; no measurement starts later.
TIME_LIMIT = 30.0
#: The least and the most seconds spent on one group.
LEAST_SECONDS, MOST_SECONDS = 0.2, 2.0
#: The measured steps are compared in this many parts, for the range of an estimate.
PARTS = 4
#: The ends of a range are at least this factor from the mean: measurements on a busy machine differ by as much.
LEAST_RATIO = 1.25
#: The settings that are named at most where two groups differ.
MOST_DIFFERENCES = 4
#: File below the plan's `out` in which measurements are stored.
FILE = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The measured time of a training step in seconds: its mean, and the means of the fastest and slowest part."""

    low: float
    mean: float
    high: float

    @classmethod
    def from_json(cls, value: Any) -> StepTime | None:
        """Read a stored measurement; None if it is damaged. Version 0.1.0 stored the mean alone."""
        values = value if isinstance(value, list) else [value] * 3
        if len(values) != 3 or not all(isinstance(number, float | int) and number > 0 for number in values):
            return None
        return cls.around(*values)

    @classmethod
    def around(cls, low: float, mean: float, high: float) -> StepTime:
        """Return a step time whose range is at least as wide as two measurements of the same steps may differ."""
        return cls(low=min(low, mean / LEAST_RATIO), mean=mean, high=max(high, mean * LEAST_RATIO))


@dataclass(frozen=True, kw_only=True)
class GroupEstimate:
    """Runs that train side by side, and the time that they need alone; None if it was not measured."""

    runs: Sequence[PlannedRun]
    steps: int  #: steps left to train
    seconds: float | None
    range: tuple[float, float] | None = None  #: the least and the greatest seconds that are likely
    difference: str = ""  #: the settings in which it differs from other groups with its models and tasks

    @property
    def name(self) -> str:
        """The models and tasks of the group, and what distinguishes it from others."""
        models = dict.fromkeys(run.config.model.name for run in self.runs)
        tasks = dict.fromkeys(run.task.name for run in self.runs)
        words = f"{', '.join(models)} on {', '.join(tasks)}"
        return f"{words}, {self.difference}" if self.difference else words


def estimate_plan(
    plan: TrainingPlan, device: str = "auto", limit: float = TIME_LIMIT, progress: ProgressOption = False
) -> list[GroupEstimate]:
    """Return the groups that a plan has still to train, with the time of each on this device.

    Measurements are stored in `calibration.json` in the folder of the plan and used again. At most about `limit`
    seconds are spent on new ones. Diverged runs stay in their group, as they do in training, and count.
    """
    groups = [[run for run in group if run.status != "finished"] for group in training_groups(plan)]
    path = plan.out / FILE
    known = read_json(path) or {}
    device_label, started, is_changed = device_name(device), monotonic(), False
    keys = [_group_key(device_label, group_key(runs[0].config, runs[0].task), len(runs)) for runs in groups]
    times = [StepTime.from_json(known.get(key)) for key in keys]
    unmeasured = [k for k, time in enumerate(times) if time is None]
    with report_progress(progress) as reporter:
        reporter.start("measure the speed of training", total=len(unmeasured), unit="groups")
        for count, k in enumerate(unmeasured):
            left = limit - (monotonic() - started)
            if left <= 0:
                break
            time = _time_steps(
                groups[k], device, min(MOST_SECONDS, max(LEAST_SECONDS, left / (len(unmeasured) - count)))
            )
            times[k], known[keys[k]], is_changed = time, [time.low, time.mean, time.high], True
            reporter.update(count + 1)
    if is_changed:
        _store(path, known)
    estimates = [_make_estimate(runs, time) for runs, time in zip(groups, times, strict=True)]
    differences = _describe_differences(estimates)
    return [replace(group, difference=words) for group, words in zip(estimates, differences, strict=True)]


def stored_seconds(plan: TrainingPlan, device: str) -> dict[Path, float]:
    """Return the time that each run has still to train in its group, as far as it was measured before."""
    estimates = estimate_plan(plan, device, limit=0.0)
    return {run.folder: group.seconds for group in estimates if group.seconds is not None for run in group.runs}


def _make_estimate(runs: Sequence[PlannedRun], time: StepTime | None) -> GroupEstimate:
    steps = max(run.config.train.steps - saved_step(run) for run in runs if run.status not in FINAL_STATUSES)
    if time is None:
        return GroupEstimate(runs=runs, steps=steps, seconds=None)
    return GroupEstimate(runs=runs, steps=steps, seconds=time.mean * steps, range=(time.low * steps, time.high * steps))


def _describe_differences(groups: Sequence[GroupEstimate]) -> list[str]:
    """Return for each group the settings in which it differs from the others that have its models and tasks."""
    values = [_shared_values(group.runs[0]) for group in groups]
    words = []
    for group, own in zip(groups, values, strict=True):
        others = [other for rival, other in zip(groups, values, strict=True) if rival.name == group.name]
        different = [name for name in own if any(other.get(name) != own[name] for other in others)]
        words.append(", ".join(f"{name}={format_setting(own[name])}" for name in different[:MOST_DIFFERENCES]))
    return words


def _shared_values(run: PlannedRun) -> dict[str, Any]:
    """Return the settings that all runs of a group share, by name."""
    _, model, train = group_key(run.config, run.task)
    values = Settings(model=model, train=train).values_by_name()
    return {name: value for name, value in values.items() if name not in IGNORED_SETTINGS}


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


def _time_steps(runs: Sequence[PlannedRun], device: str, seconds: float) -> StepTime:
    """Time as many steps as fit into `seconds`, after warm-up steps."""
    target = resolve_device(device)
    engine = TrainingEngine([run.task for run in runs], [run.config for run in runs], target)
    chunk = 10 if target.type == "cuda" else 1  # a GPU trains ten steps per launch
    last = min(run.config.train.steps for run in runs)
    engine.advance(min(chunk, last))
    engine.wait()
    started, first = monotonic(), engine.step
    marks = [(first, started)]
    while engine.step < last and (engine.step == first or monotonic() - started < seconds):
        engine.advance(min(chunk, last - engine.step))
        engine.wait()
        marks.append((engine.step, monotonic()))
    elapsed = monotonic() - started
    if target.type == "cuda":
        torch.cuda.empty_cache()
    # Strings differ in length from step to step, so the parts have to be long: a quarter of all steps each.
    ends = [marks[round(k * (len(marks) - 1) / PARTS)] for k in range(PARTS + 1)]
    means = [(time - start) / (step - before) for (before, start), (step, time) in pairwise(ends) if step > before]
    mean = max(elapsed, 1e-9) / max(engine.step - first, 1)
    return StepTime.around(min([mean, *means]), mean, max([mean, *means]))


def _store(path: Path, known: dict[str, Any]) -> None:
    """Write the measurements; if that fails they are only measured again next time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
