"""A summary of runs: what was trained, how far, and how accurate it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from sdssm.display import ResultTable
from sdssm.errors import RunError, RunWarning, SdssmError
from sdssm.formatting import UNKNOWN, format_chance, format_loss, format_percent
from sdssm.means import mean_of_known
from sdssm.runs.constant_answers import training_constants
from sdssm.runs.folder import RunFolder
from sdssm.tasks import chance_accuracy
from sdssm.tasks.label_shares import best_constants

#: Columns of numbers.
NUMBERS = (
    "seed",
    "step",
    "accuracy %",
    "best constant %",
    "loss",
    "balanced % to length",
    "balanced chance %",
    "accuracy % to length",
    "constant % to length",
)


def summarise_run(run: RunFolder, best_constant: float | None = None) -> dict[str, Any]:
    """Return what a run trains, its progress and its accuracy, as plain values.

    `accuracy` is that of the training strings, a moving average over the last steps, and `best_constant` what the best
    constant answer scores on them; `chance` is that of a random guess. `balanced` is the mean balanced accuracy of the
    evaluation up to `max_length` and `balanced_chance` what a constant answer scores there, `mean` its accuracy over
    all lengths and `mean_constant` the best constant answer there; all are None if the run was not evaluated, and the
    first two if the evaluation was made by a version without them. Pass `best_constant` if `training_constants` has
    computed it for many runs at once.
    """
    progress, evaluation = run.progress, _read_evaluation(run)
    is_interrupted = progress.status == "running" and run.is_interrupted
    is_known = not is_interrupted or run.step == progress.step  # the checkpoint has no accuracy of its own
    return {
        "folder": str(run.path),
        "task": run.config.task,
        "model": run.config.model.name,
        "preset": run.config.preset,
        "seed": run.config.seed,
        "status": "interrupted" if is_interrupted else progress.status,
        "step": run.step if is_interrupted else progress.step,  # an interrupted run resumes from its checkpoint
        "steps": progress.steps,
        "seconds": progress.seconds,
        "accuracy": progress.accuracy if is_known else None,
        "best_constant": training_constants([run.config])[0] if best_constant is None else best_constant,
        "chance": chance_accuracy(run.config.n_classes),
        "loss": progress.loss if is_known else None,
        "balanced": evaluation.get("balanced"),
        "balanced_chance": evaluation.get("balanced_chance"),
        "mean": evaluation.get("mean"),
        "mean_constant": evaluation.get("mean_constant"),
        "max_length": evaluation.get("max_length"),
    }


def tabulate_runs(summaries: Sequence[dict[str, Any]], title: str = "") -> ResultTable:
    """Return the summaries of runs as a table."""
    rows = [
        [
            summary["folder"],
            summary["task"],
            summary["model"],
            summary["preset"],
            str(summary["seed"]),
            summary["status"],
            f"{summary['step']:,}/{summary['steps']:,}",
            format_percent(summary["accuracy"]),
            format_chance(summary["best_constant"]),
            format_loss(summary["loss"]),
            _format_evaluated(summary, "balanced", format_percent),
            format_chance(summary["balanced_chance"]),
            _format_evaluated(summary, "mean", format_percent),
            _format_evaluated(summary, "mean_constant", format_chance),
        ]
        for summary in summaries
    ]
    headers = ["folder", "task", "model", "preset", "seed", "status", *NUMBERS[1:]]
    return ResultTable(headers, rows, title=title, right=NUMBERS)


def _format_evaluated(summary: dict[str, Any], name: str, format_number: Callable[[float], str]) -> str:
    value = summary[name]
    return UNKNOWN if value is None else f"{format_number(value)} to {summary['max_length']:,}"


def _read_evaluation(run: RunFolder) -> dict[str, Any]:
    """Return mean accuracies, best constant answer and longest length of evaluation.json; empty if there is none."""
    try:
        evaluation = run.read_json("evaluation.json")
    except RunError as error:
        warnings.warn(f"{error}; it counts as missing", RunWarning, stacklevel=3)
        return {}
    if not isinstance(evaluation, dict) or not isinstance(evaluation.get("mean"), float | int):
        return {}
    if not isinstance(evaluation.get("max_length"), int):
        return {}
    balanced, constant = evaluation.get("balanced"), evaluation.get("best_constant_mean")
    return {
        "balanced": balanced.get("mean") if isinstance(balanced, dict) else None,
        "balanced_chance": balanced.get("best_constant_mean") if isinstance(balanced, dict) else None,
        "mean": evaluation["mean"],
        "mean_constant": constant if isinstance(constant, float | int) else _mean_constant(run, evaluation),
        "max_length": evaluation["max_length"],
    }


def _mean_constant(run: RunFolder, evaluation: dict[str, Any]) -> float | None:
    """Return the best constant answer for an evaluation of every length that was made by a version without it."""
    try:
        task, lengths = run.config.load_task(), range(1, evaluation["max_length"] + 1)
        return mean_of_known(best_constants(task, lengths, random_start=run.config.has_random_start))
    except SdssmError:
        return None
