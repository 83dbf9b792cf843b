"""How long a plan will take: a few steps of every group that would train side by side, remembered."""

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
from sdssm.experiments.execution.runner import groups_of, reached
from sdssm.experiments.planning.plan import PlannedRun, Trainings
from sdssm.experiments.results.folder import read_json
from sdssm.files import write_atomic
from sdssm.runs import ENDED
from sdssm.training.engine import Engine, shape

#: Seconds that may be spent on measuring: no group is begun later.
LIMIT = 30.0
#: The least and the most seconds for one group.
LEAST, MOST = 0.2, 2.0
FILE = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class GroupEstimate:
    """Runs that share every launch, and how long they would take alone; None where it was not measured."""

    runs: Sequence[PlannedRun]
    steps: int  #: that are left
    seconds: float | None

    @property
    def name(self) -> str:
        models = dict.fromkeys(run.config.model.name for run in self.runs)
        tasks = dict.fromkeys(run.task.name for run in self.runs)
        return f"{', '.join(models)} on {', '.join(tasks)}"


def estimate(plan: Trainings, device: str = "auto", limit: float = LIMIT) -> list[GroupEstimate]:
    """The groups that a plan has still to train, with the time of each on this device.

    One that diverged stays beside the others of its group, as in the training, and takes its part of the time.
    """
    groups = [[run for run in group if run.status != "finished"] for group in groups_of(plan)]
    path = plan.out / FILE
    known = read_json(path) or {}
    where, began, measured = device_name(device), monotonic(), False
    names = [_key(where, shape(of[0].config, of[0].task), len(of)) for of in groups]
    new = sum(name not in known for name in names)
    found = []
    for name, of in zip(names, groups, strict=True):
        if name not in known and monotonic() - began < limit:
            share = (limit - (monotonic() - began)) / max(new, 1)
            known[name] = _seconds_a_step(of, device, min(MOST, max(LEAST, share)))
            new, measured = new - 1, True
        left = max(run.config.train.steps - reached(run) for run in of if run.status not in ENDED)
        each = known.get(name)
        found.append(GroupEstimate(runs=of, steps=left, seconds=None if each is None else each * left))
    if measured:
        _remember(path, known)
    return found


def budget_for(groups: Sequence[GroupEstimate], seconds: float) -> float:
    """The share of their steps, at most all, that groups could make in so many seconds, one after the other.

    Rounded to two digits: estimates are good for no more. A group that was not measured counts as much a run and step
    as the others.

    >>> budget_for([GroupEstimate(runs=[], steps=1000, seconds=60.0)], 20.0)
    0.33
    >>> budget_for([], 20.0)
    1.0
    """
    known = [(one.seconds, len(one.runs) * one.steps) for one in groups if one.seconds is not None]
    if not known:
        return 1.0
    taken, made = (sum(column) for column in zip(*known, strict=True))
    others = sum(len(one.runs) * one.steps for one in groups if one.seconds is None)
    share = seconds / (taken + taken / max(made, 1) * others)
    return min(1.0, float(f"{share:.1e}"))


def _key(device: str, form: Any, replicas: int) -> str:
    """Device, and a fingerprint of what is computed: of the steps only each one counts."""
    tasks, model, train = form
    told = repr((tasks, model, train.batch, train.clip, replicas))
    return f"{device} {hashlib.sha256(told.encode()).hexdigest()[:16]}"


def _seconds_a_step(runs: Sequence[PlannedRun], device: str, seconds: float) -> float:
    """The mean over as many steps as fit, after those that prepare."""
    where = resolve_device(device)
    engine = Engine([run.task for run in runs], [run.config for run in runs], where)
    few = 10 if where.type == "cuda" else 1  # a GPU trains ten steps at a time
    most = min(run.config.train.steps for run in runs)
    engine.advance(min(few, most))
    engine.wait()
    begin, first = monotonic(), engine.step
    while engine.step < most and (engine.step == first or monotonic() - begin < seconds):
        engine.advance(min(few, most - engine.step))
        engine.wait()
    took = monotonic() - begin
    if where.type == "cuda":
        torch.cuda.empty_cache()
    return took / max(engine.step - first, 1)


def _remember(path: Path, known: dict[str, Any]) -> None:
    """Where it cannot be kept it is measured again."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
