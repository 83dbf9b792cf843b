"""Tiny trainings of several shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdssm.runs.schema import configure, resolve
from sdssm.tasks import get_task
from sdssm.training.planning import Planned

#: Three shapes, and so three groups of two seeds.
STATES = (3, 4, 5)


def planned(out: Path, steps: int = 10, **values: Any) -> list[Planned]:
    of, found = get_task("parity"), []
    for state in STATES:
        given = {"state": state, "batch": 4, "train_length": 5, "steps": steps, "log_every": 5, **values}
        settings = resolve("lstm", "default", "parity", given)
        for seed in (0, 1):
            found.append((out / f"state-{state}" / f"seed-{seed}", of, configure(of, seed, settings, "default", "now")))
    return found
