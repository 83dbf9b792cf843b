"""`sdssm runs`: what there is, how far it is and how good."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdssm.cli.output import print_json, print_table
from sdssm.errors import RunError, RunWarning
from sdssm.report.rendering import format_percent as percent

if TYPE_CHECKING:
    from sdssm.runs import RunFolder

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser("runs", help="what was trained, how far and how well", allow_abbrev=False)
    one.add_argument("dir", metavar="DIR", nargs="?", type=Path, default=Path("runs"), help="where (default runs)")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> None:
    from sdssm.runs import find_runs

    found = []
    for run in find_runs(options.dir):
        try:
            found.append(_facts(run))
        except RunError as error:
            warnings.warn(f"{error}; left out", RunWarning, stacklevel=2)
    if options.json:
        print_json(found)
        return
    headers = ["folder", "task", "model", "preset", "seed", "status", "step", "accuracy %", "loss", "mean % to length"]
    rows = [
        [
            one["folder"],
            one["task"],
            one["model"],
            one["preset"],
            str(one["seed"]),
            one["status"],
            f"{one['step']:,}/{one['steps']:,}",
            percent(one["accuracy"]),
            "-" if one["loss"] is None else f"{one['loss']:.4f}",
            "-" if one["mean"] is None else f"{percent(one['mean'])} to {one['max_length']:,}",
        ]
        for one in found
    ]
    print_table(headers, rows, right=("seed", "step", "accuracy %", "loss", "mean % to length"))


def _facts(run: RunFolder) -> dict[str, Any]:
    at, evaluated = run.progress, _evaluated(run)
    return {
        "folder": str(run.path),
        "task": run.config.task,
        "model": run.config.model.name,
        "preset": run.config.preset,
        "seed": run.config.seed,
        "status": "interrupted" if run.interrupted else at.status,
        "step": at.step,
        "steps": at.steps,
        "seconds": at.seconds,
        "accuracy": at.accuracy,
        "loss": at.loss,
        "mean": evaluated.get("mean"),
        "max_length": evaluated.get("max_length"),
    }


def _evaluated(run: RunFolder) -> dict[str, Any]:
    """The mean accuracy of evaluation.json, where it was evaluated."""
    try:
        found = run.read_json("evaluation.json")
    except RunError:  # damaged: as good as none
        return {}
    if not isinstance(found, dict) or not isinstance(found.get("mean"), float | int):
        return {}
    if not isinstance(found.get("max_length"), int):
        return {}
    return {"mean": found["mean"], "max_length": found["max_length"]}
