"""The evaluation files that an experiment requires: which of them are missing, and what the others hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdssm.evaluation.records import READ_FRESH, READ_PREFIXES
from sdssm.evaluation.stored import EVALUATION_FILE, LENGTHS_FILE, read_stored
from sdssm.experiments.planning.plan import Plan
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.runs import FINAL_STATUSES, RunFolder
from sdssm.tasks import Task

#: The seed of the test strings, the same for all runs.
STRING_SEED = 1
#: A run folder, and the name of an evaluation file in it.
EvaluationFile = tuple[Path, str]


def missing_files(plan: Plan) -> list[EvaluationFile]:
    """Return the evaluation files that a plan has still to compute, for its runs that have ended."""
    ended = [run for run in plan.selected_runs() if run.status in FINAL_STATUSES]
    return [
        (run.folder, name) for run in ended for name in missing_evaluations(run.folder, run.task, plan.spec.evaluate)
    ]


def missing_evaluations(folder: Path, task: Task, spec: EvaluationSpec) -> list[str]:
    """Return the names of the evaluation files that a run folder lacks."""
    curve, listed = read_evaluations(folder, task, spec)
    names = [EVALUATION_FILE] if curve is None else []
    return [*names, LENGTHS_FILE] if spec.lengths and not listed else names


def read_evaluations(folder: Path, task: Task, spec: EvaluationSpec) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the evaluations of a run at every length and at the listed lengths of a spec.

    The first is None, or the second an empty dictionary, if it is missing or does not match the spec.
    """
    run = RunFolder.open(folder)
    curve = _read(run, EVALUATION_FILE)
    listed = _read(run, LENGTHS_FILE) if spec.lengths else {}
    return curve if _has_every_length(curve, task, spec) else None, listed if _has_listed_lengths(listed, spec) else {}


def _read(run: RunFolder, name: str) -> dict[str, Any]:
    content = read_stored(run, name)
    return content if isinstance(content, dict) else {}


def _has_every_length(evaluation: dict[str, Any], task: Task, spec: EvaluationSpec) -> bool:
    """Return whether an evaluation has the lengths and the strings that the spec requires."""
    longest = spec.max_length or task.test_length
    is_long_enough = isinstance(evaluation.get("max_length"), int) and evaluation["max_length"] >= longest
    if not _has_same_strings(evaluation, spec) or not is_long_enough:
        return False
    if len(evaluation.get("accuracy") or ()) != evaluation["max_length"] or not _has_measures(evaluation, spec):
        return False
    # Some models can be evaluated on fresh strings only; the note of the evaluation says so.
    is_forced = evaluation.get("read") == READ_FRESH and str(evaluation.get("note") or "").startswith("fresh strings")
    return is_forced or evaluation.get("read") == (READ_FRESH if spec.fresh else READ_PREFIXES)


def _has_listed_lengths(evaluation: dict[str, Any], spec: EvaluationSpec) -> bool:
    has_lengths = evaluation.get("lengths") == list(spec.lengths) and _has_measures(evaluation, spec)
    return has_lengths and _has_same_strings(evaluation, spec)


def _has_measures(evaluation: dict[str, Any], spec: EvaluationSpec) -> bool:
    """Return whether an evaluation was made by a version that takes the measures of the scores; they may be null."""
    return all(score.measure is None or score.measure in evaluation for score in spec.scores)


def _has_same_strings(evaluation: dict[str, Any], spec: EvaluationSpec) -> bool:
    """Return whether an evaluation used the strings of the spec, and was made after the training ended."""
    strings = (evaluation.get("strings"), evaluation.get("string_seed"))
    return strings == (spec.strings, STRING_SEED) and evaluation.get("status") in FINAL_STATUSES
