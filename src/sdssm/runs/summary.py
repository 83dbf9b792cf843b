"""A summary of runs: what was trained, how far, and how accurate it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sdssm.display import ResultTable
from sdssm.errors import RunError
from sdssm.formatting import format_chance, format_loss, format_percent
from sdssm.runs.folder import RunFolder
from sdssm.tasks import chance_accuracy

#: Columns of numbers.
NUMBERS = ("seed", "step", "accuracy %", "chance %", "loss", "mean % to length")


def summarise_run(run: RunFolder) -> dict[str, Any]:
    """Return what a run trains, its progress and its accuracy, as plain values.

    `accuracy` is at training lengths, a moving average over the last steps. `mean` is the accuracy over all lengths up
    to `max_length`, None if the run was not evaluated.
    """
    progress, evaluation = run.progress, _read_evaluation(run)
    is_interrupted = run.is_interrupted
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
        "chance": chance_accuracy(run.config.n_classes),
        "loss": progress.loss if is_known else None,
        "mean": evaluation.get("mean"),
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
            format_chance(summary["chance"]),
            format_loss(summary["loss"]),
            "-" if summary["mean"] is None else f"{format_percent(summary['mean'])} to {summary['max_length']:,}",
        ]
        for summary in summaries
    ]
    headers = ["folder", "task", "model", "preset", "seed", "status", *NUMBERS[1:]]
    return ResultTable(headers, rows, title=title, right=NUMBERS)


def _read_evaluation(run: RunFolder) -> dict[str, Any]:
    """Return mean accuracy and longest length from evaluation.json; empty if there is none."""
    try:
        evaluation = run.read_json("evaluation.json")
    except RunError:  # a damaged file counts as none
        return {}
    if not isinstance(evaluation, dict) or not isinstance(evaluation.get("mean"), float | int):
        return {}
    if not isinstance(evaluation.get("max_length"), int):
        return {}
    return {"mean": evaluation["mean"], "max_length": evaluation["max_length"]}
