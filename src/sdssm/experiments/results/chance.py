"""Chance levels: the accuracy of guessing, without which an accuracy says little."""

from __future__ import annotations

from sdssm.experiments.specs.spec import Spec
from sdssm.tasks import get_task


def chance_by_cell(spec: Spec) -> dict[tuple[str, str], float]:
    """Return the chance level of every cell of an experiment, in percent, by row and column."""
    by_task = {name: get_task(name).chance_accuracy for row in spec.rows for name in row.tasks}
    return {(row.label, row.column_of(name)): by_task[name] for row in spec.rows for name in row.tasks}
