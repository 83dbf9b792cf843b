"""Records: one dictionary per evaluated run, as results.json holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdssm.evaluation.description import changed_settings
from sdssm.experiments.execution.evaluation_files import read_evaluations
from sdssm.experiments.planning.plan import Plan, PlannedRun
from sdssm.experiments.results.history import read_history
from sdssm.experiments.specs.scores import Score
from sdssm.experiments.specs.spec import Spec
from sdssm.runs import FINAL_STATUSES, RunFolder

Record = dict[str, Any]
#: The keys that a record needs to be compared with others; results of an older version may lack some.
REQUIRED_KEYS = frozenset(
    ("row", "column", "seed", "variant", "training", "max_length", "status", "steps", "scores", "bands", "within")
)


def make_records(plan: Plan) -> list[Record]:
    """Return a record for each run of a plan that has ended and was evaluated, selected or not."""
    records = (_make_record(plan.spec, run) for run in plan.runs if run.status in FINAL_STATUSES)
    return [record for record in records if record is not None]


def _make_record(spec: Spec, run: PlannedRun) -> Record | None:
    evaluation = spec.evaluate
    curve, listed = read_evaluations(run.folder, run.task, evaluation)
    config = run.config
    folder = RunFolder.open(run.folder)
    progress = folder.progress
    if curve is None and progress.status != "diverged":
        return None
    longest = evaluation.max_length or run.task.test_length
    record: Record = {
        "row": run.row,
        "column": run.column,
        "task": config.task,
        "model": config.model.name,
        "preset": config.preset,
        "seed": config.seed,
        "variant": dict(run.variant),
        "training": run.training,
        "digest": config.digest,
        "settings": changed_settings(config.settings, config.preset, config.task),
        "train_length": config.train_length,
        "max_length": longest,
        "status": progress.status,
        "steps": config.train.steps,
        "seconds": round(progress.seconds, 1),
        "trained_on": progress.device,
        "versions": dict(config.versions),
        "evaluated_on": None if curve is None else curve.get("device"),
        "scores": {},
        "bands": {},
        "constants": {},  # what the best constant answer scores
        "within": None,
        "judged_within": None,  # by the measure of the first score, by which candidates of a search are compared
        "constant_within": None,
        "first_below_99": None,
        "accuracy": None,
        "chance": run.task.chance_accuracy,
        "strings": evaluation.strings,
    }
    if curve is not None:
        for score in evaluation.scores:
            value, band, constant = _measure(score, curve, listed, longest)
            record["scores"][score.name] = value
            record["bands"][score.name] = band
            record["constants"][score.name] = constant
        first_below_99 = curve.get("first_below_99")
        record["judged_within"] = evaluation.scores[0].compute_within(curve)
        record["constant_within"] = evaluation.scores[0].compute_within(curve, "best_constant")
        record["within"] = Score("within").compute(curve, longest)
        record["first_below_99"] = first_below_99 if first_below_99 is None or first_below_99 <= longest else None
        values = curve["accuracy"][:longest]
        record["accuracy"] = [None if value is None else round(value, 2) for value in values]
    if config.train.evaluate_every is not None:
        record["history"] = read_history(folder.events())
    return record


def _measure(
    score: Score, curve: Mapping[str, Any], listed: Mapping[str, Any], longest: int
) -> tuple[float | None, Sequence[float] | None, float | None]:
    """Return the value of a score, its confidence interval, and what the best constant answer scores."""
    if score.measure is not None:
        value, low, high, constant = (
            score.compute_measure(curve, listed, name, longest) for name in ("accuracy", "low", "high", "best_constant")
        )
        has_band = " at " in score.name and low is not None and high is not None
        return value, (low or 0.0, high or 0.0) if has_band else None, constant
    if score.listed_length is not None:
        return score.compute_listed(listed), score.listed_band(listed), score.listed_constant(listed)
    return score.compute(curve, longest), score.band(curve, longest), score.constant(curve, longest)


def record_key(record: Record) -> tuple[Any, ...]:
    """Return what identifies a record in its results: row, column, training, seed and steps."""
    return record["row"], record["column"], record["training"], record["seed"], record["steps"]


def merge_records(plan: Plan, old: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """Merge new records with those of earlier commands, in the order of the plan.

    Of each cell only the runs with the most steps are kept; of a grid all runs. Old records whose training or test
    lengths no longer match the spec are dropped.
    """
    max_length = plan.spec.evaluate.max_length
    chances = {(run.row, run.column): run.task.chance_accuracy for run in plan.runs}
    planned = {(run.row, run.column, run.training, max_length or run.task.test_length) for run in plan.runs}
    matching: dict[tuple[Any, ...], Record] = {}
    for record in (*old, *new):
        cell = (record["row"], record["column"])
        if (*cell, record["training"], record["max_length"]) in planned:
            # Records of version 0.1.0 have no chance level.
            matching[record_key(record)] = {**record, "chance": chances[cell]}
    most_steps: dict[tuple[str, str], int] = {}
    for record in matching.values():
        cell = (record["row"], record["column"])
        most_steps[cell] = max(most_steps.get(cell, 0), record["steps"] if not record["variant"] else 0)
    trainings = dict.fromkeys((run.row, run.column, run.training) for run in plan.runs)
    order = {key: number for number, key in enumerate(trainings)}
    kept = [
        record
        for record in matching.values()
        if record["variant"] or record["steps"] == most_steps[record["row"], record["column"]]
    ]
    return sorted(kept, key=lambda r: (order[r["row"], r["column"], r["training"]], r["seed"], r["steps"]))
