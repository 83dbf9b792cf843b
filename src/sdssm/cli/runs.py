"""`sdssm runs`: list the runs in a folder, with their progress and accuracy."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import JSON_HELP, declare_command
from sdssm.cli.output import print_json, print_table
from sdssm.errors import RunError, RunWarning

if TYPE_CHECKING:
    from sdssm.cli.options import Commands


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "runs",
        summary="list trained models, their progress and accuracy",
        description="List the runs in a folder: how far each was trained, its accuracy on the training "
        "strings beside the best constant answer on them, and if it was evaluated its mean balanced accuracy, its mean "
        "accuracy and the best constant answer over all lengths.",
        examples=["sdssm runs", "sdssm runs runs/a5 --json"],
    )
    add = parser.add_argument
    add("dir", metavar="DIR", nargs="?", type=Path, default=Path("runs"), help="folder to list (default: %(default)s)")
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_list_runs)


def _list_runs(options: argparse.Namespace) -> None:
    from sdssm.runs import find_runs
    from sdssm.runs.summary import summarise_run, tabulate_runs

    summaries = []
    with warnings.catch_warnings():
        # Models that were saved beside the runs are not damaged runs.
        warnings.filterwarnings("ignore", ".* holds a saved model and no run", RunWarning)
        runs = find_runs(options.dir)
    for run in runs:
        try:
            summaries.append(summarise_run(run))
        except RunError as error:
            warnings.warn(f"{error}; it is not listed", RunWarning, stacklevel=2)
    if options.json:
        print_json(summaries)
        return
    table = tabulate_runs(summaries)
    # How far a run is comes before its evaluation, which `sdssm evaluate` shows better.
    print_table(
        table.headers,
        table.rows,
        right=table.right,
        drop=("preset", "loss", "constant % to length", "accuracy % to length"),
        keep=("step",),
    )
