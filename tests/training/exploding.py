"""A training that ends in numbers that are not finite."""

from __future__ import annotations

import pytest

from sdssm.runs.schema import RunConfig
from sdssm.training import schedules

#: The rate that explodes.
EXPLODING = 0.123


def explode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with that rate train at one that no setting allows."""
    learning_rate = schedules.learning_rate

    def exploding(run: RunConfig, step: schedules.Ints) -> schedules.Floats:
        return learning_rate(run, step) * (1e38 if run.train.lr == EXPLODING else 1.0)

    monkeypatch.setattr(schedules, "learning_rate", exploding)
