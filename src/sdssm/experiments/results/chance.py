"""Chance levels and best constant answers, without which an accuracy says little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sdssm.errors import SdssmError
from sdssm.experiments.specs.scores import Score
from sdssm.experiments.specs.spec import Spec
from sdssm.means import mean_of_known
from sdssm.tasks import get_task
from sdssm.tasks.label_shares import best_constants
from sdssm.tasks.library import get_library_task


def chance_by_cell(spec: Spec) -> dict[tuple[str, str], float]:
    """Return the chance level of every cell of an experiment, in percent, by row and column."""
    by_task = {name: get_task(name).chance_accuracy for row in spec.rows for name in row.tasks}
    return {(row.label, row.column_of(name)): by_task[name] for row in spec.rows for name in row.tasks}


class BestConstants:
    """What the best constant answer has in scores of the accuracy, in percent, computed from the machines.

    For records without it: those of older versions, and scores such as "to 5000", which an evaluation does not compute.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], float | None] = {}

    def compute(self, score: Score, record: Mapping[str, Any]) -> float | None:
        """Return it for a score of a record; None for scores of other measures, or if the task no longer exists."""
        if score.measure is not None or score.threshold is not None or not record.get("train_length"):
            return None
        random_start = (record.get("settings") or {}).get("state_embedding") is not None
        key = (score.name, record.get("task"), record["train_length"], record["max_length"], random_start)
        if key not in self._known:
            try:
                task = get_library_task(record["task"])
            except SdssmError:
                return None
            lengths = score.lengths(record["train_length"], record["max_length"])
            self._known[key] = mean_of_known(best_constants(task, lengths, random_start=random_start))
        return self._known[key]


def fill_constants(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored results with what the best constant answer scores in each cell.

    Results of older versions lack it. It follows from the task alone, so nothing has to be measured again.
    """
    if results["kind"] != "accuracy":
        return dict(results)
    constants, records = BestConstants(), dict[tuple[str, str], Mapping[str, Any]]()
    for record in results.get("runs", ()):
        records.setdefault((record["row"], record["column"]), record)
    cells = []
    for cell in results["cells"]:
        record = records.get((cell["row"], cell["column"]))
        if cell.get("best_constant") is None and cell["max"] is not None and record is not None:
            cell = {**cell, "best_constant": constants.compute(Score(cell["score"]), record)}
        cells.append(cell)
    return {**results, "cells": cells}
