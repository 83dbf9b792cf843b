"""`sdssm runs`: list the runs in a folder, with their progress and accuracy."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdssm.cli.options import JSON_HELP, declare_command
from sdssm.cli.output import format_chance_level, print_json, print_table
from sdssm.errors import RunError, RunWarning
from sdssm.formatting import format_loss
from sdssm.report.rendering import format_percent
from sdssm.tasks import chance_accuracy

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.runs import RunFolder


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "runs",
        summary="list trained models, their progress and accuracy",
        description="List the runs in a folder: how far each was trained, its accuracy at training lengths, and its "
        "mean accuracy over all lengths if it was evaluated.",
        examples=["sdssm runs", "sdssm runs runs/a5 --json"],
    )
    add = parser.add_argument
    add("dir", metavar="DIR", nargs="?", type=Path, default=Path("runs"), help="folder to list (default: %(default)s)")
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_list_runs)


def _list_runs(options: argparse.Namespace) -> None:
    from sdssm.runs import find_runs

    runs, facts = [], []
    for run in find_runs(options.dir):
        try:
            facts.append(_facts(run))
            runs.append(run)
        except RunError as error:
            warnings.warn(f"{error}; it is not listed", RunWarning, stacklevel=2)
    if options.json:
        print_json(facts)
        return
    numbers = ("seed", "step", "accuracy %", "chance %", "loss", "mean % to length")
    headers = ["folder", "task", "model", "preset", "seed", "status", *numbers[1:]]
    rows = [
        [
            fact["folder"],
            fact["task"],
            fact["model"],
            fact["preset"],
            str(fact["seed"]),
            fact["status"],
            f"{fact['step']:,}/{fact['steps']:,}",
            format_percent(fact["accuracy"]),
            format_chance_level(run.config.n_classes),
            format_loss(fact["loss"]),
            "-" if fact["mean"] is None else f"{format_percent(fact['mean'])} to {fact['max_length']:,}",
        ]
        for run, fact in zip(runs, facts, strict=True)
    ]
    print_table(headers, rows, right=numbers)


def _facts(run: RunFolder) -> dict[str, Any]:
    progress, evaluation = run.progress, _evaluation(run)
    return {
        "folder": str(run.path),
        "task": run.config.task,
        "model": run.config.model.name,
        "preset": run.config.preset,
        "seed": run.config.seed,
        "status": "interrupted" if run.is_interrupted else progress.status,
        "step": progress.step,
        "steps": progress.steps,
        "seconds": progress.seconds,
        "accuracy": progress.accuracy,
        "chance": chance_accuracy(run.config.n_classes),
        "loss": progress.loss,
        "mean": evaluation.get("mean"),
        "max_length": evaluation.get("max_length"),
    }


def _evaluation(run: RunFolder) -> dict[str, Any]:
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
