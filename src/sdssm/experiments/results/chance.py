"""Chance levels: the accuracy of guessing, without which an accuracy says little."""

from __future__ import annotations

from typing import Any

from sdssm.errors import SdssmError
from sdssm.evaluation.sampled_accuracy import choose_lengths
from sdssm.experiments.specs.scores import mean_of_known
from sdssm.experiments.specs.spec import Row, Spec
from sdssm.runs.schema import resolve_settings
from sdssm.tasks import Task, get_task
from sdssm.tasks.label_shares import best_constants


def chance_by_cell(spec: Spec) -> dict[tuple[str, str], float]:
    """Return the chance level of every cell of an experiment, in percent, by row and column."""
    by_task = {name: get_task(name).chance_accuracy for row in spec.rows for name in row.tasks}
    return {(row.label, row.column_of(name)): by_task[name] for row in spec.rows for name in row.tasks}


def best_constant_by_cell(spec: Spec) -> dict[tuple[str, str, str], float | None]:
    """Return what the best constant answer scores in every cell, in percent, by score, row and column."""
    levels: dict[tuple[str, str, str], float | None] = {}
    known: dict[tuple[Any, ...], float | None] = {}
    for row in spec.rows:
        for name in row.tasks:
            task = get_task(name)
            train_length, random_start = _training(row, task)
            for score in spec.evaluate.scores:
                key = (score.name, name, train_length, random_start)
                if key not in known:
                    longest = spec.evaluate.max_length or task.test_length
                    lengths = score.lengths(train_length, longest) or choose_lengths(range(1, longest + 1))
                    sampling = score.measure or "uniform"
                    is_random = random_start and sampling == "uniform"
                    known[key] = mean_of_known(best_constants(task, lengths, sampling, random_start=is_random))
                levels[score.name, row.label, row.column_of(name)] = known[key]
    return levels


def _training(row: Row, task: Task) -> tuple[int, bool]:
    """Return the training length of a row, and whether its strings start in random states."""
    try:
        settings = resolve_settings(row.model, row.preset, task.name, row.settings)
    except SdssmError:  # settings of a grid, or code that is not imported
        return task.train_length, False
    return settings.train.train_length or task.train_length, settings.model.state_embedding is not None
