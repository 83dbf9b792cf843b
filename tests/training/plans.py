"""A plan of tiny runs in three groups, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import get_task
from sdssm.training.planning import RunPlan

#: State sizes: three shapes, and so three groups of two seeds.
STATES = (3, 4, 5)


def plan_groups(out: Path, steps: int = 10, **values: Any) -> list[RunPlan]:
    """Return six runs of an LSTM on parity, in out/state-3/seed-0 to out/state-5/seed-1."""
    task, runs = get_task("parity"), []
    for state in STATES:
        changes = {"state": state, "batch": 4, "train_length": 5, "steps": steps, "log_every": 5, **values}
        settings = resolve_settings("lstm", "default", "parity", changes)
        for seed in (0, 1):
            config = create_config(task, seed, settings, "default", "now")
            runs.append((out / f"state-{state}" / f"seed-{seed}", task, config))
    return runs
