"""Make the loss of chosen runs infinite, for tests of divergence."""

from __future__ import annotations

import pytest

from sdssm.runs.schema import RunConfig
from sdssm.training import schedules

#: Runs with this learning rate diverge after a call of `explode`.
EXPLODING = 0.123


def explode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train runs with the rate EXPLODING at a rate far above what a setting allows."""
    learning_rate = schedules.learning_rate

    def exploding(run: RunConfig, step: schedules.Ints) -> schedules.Floats:
        return learning_rate(run, step) * (1e38 if run.train.lr == EXPLODING else 1.0)

    monkeypatch.setattr(schedules, "learning_rate", exploding)
