"""`sdssm runs`: list the runs in a folder, with their progress and accuracy; verify and repair their files."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import JSON_HELP, declare_command
from sdssm.cli.output import print_json, print_table, print_text
from sdssm.errors import RunError, RunWarning, SettingsError
from sdssm.formatting import BEST_CONSTANT

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.runs.integrity import FolderCheck

#: The exit code of `--verify` if a file is damaged or missing, and of `--repair` if one stays so.
DAMAGED = 1
#: Below the list of runs.
EXPLANATION = (
    f"accuracy: on the training strings of the last steps; {BEST_CONSTANT}. After `to length`: of the evaluation; "
    "balanced: on strings whose labels are equally frequent; balanced chance: what any constant answer scores on them."
)


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "runs",
        summary="list trained models, their progress and accuracy; verify and repair their files",
        description="List the runs in a folder: how far each was trained, its accuracy on the training "
        "strings beside the best constant answer on them, and if it was evaluated its mean balanced accuracy beside "
        "what a constant answer scores there, its mean accuracy and the best constant answer over all lengths. With "
        "--verify, every file is read and compared with its checksum, and the exit code is 1 if one is damaged.",
        examples=["sdssm runs", "sdssm runs runs/a5 --json", "sdssm runs --verify", "sdssm runs --repair runs/a5"],
    )
    add = parser.add_argument
    add("dir", metavar="DIR", nargs="?", type=Path, default=Path("runs"), help="folder to list (default: %(default)s)")
    add("--verify", action="store_true", help="verify every file of the runs instead, also model and checkpoints")
    add(
        "--repair",
        action="store_true",
        help="repair what is damaged: restore the model from the last checkpoint and the status from the other files, "
        "and remove damaged results, which can be computed again",
    )
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    if options.verify and options.repair:
        raise SettingsError("--verify changes nothing and --repair does; leave one of them out")
    if options.repair:
        _repair_runs(options)
    elif options.verify:
        _verify_runs(options)
    else:
        _list_runs(options)


def _list_runs(options: argparse.Namespace) -> None:
    from sdssm.runs import find_runs
    from sdssm.runs.constant_answers import training_constants
    from sdssm.runs.summary import summarise_run, tabulate_runs

    summaries = []
    with warnings.catch_warnings():
        # Models that were saved beside the runs are not damaged runs.
        warnings.filterwarnings("ignore", ".* holds a saved model and no run", RunWarning)
        runs = find_runs(options.dir)
    constants = training_constants([run.config for run in runs])  # once for all runs of a task
    for run, constant in zip(runs, constants, strict=True):
        try:
            summaries.append(summarise_run(run, constant))
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
        keep=("step", "balanced chance %"),
    )
    print()
    print_text(EXPLANATION)


def _verify_runs(options: argparse.Namespace) -> None:
    from sdssm.runs.integrity import check_folder, find_folders

    checks = [check_folder(folder) for folder in find_folders(options.dir)]
    if options.json:
        print_json([check.to_json() for check in checks])
    else:
        print_table(("folder", "state", "files", "not intact"), [_check_row(item) for item in checks])
        for check in checks:
            for file in check.files:
                if file.is_damaged:
                    text = file.detail if str(check.path) in file.detail else f"{check.path / file.name}: {file.detail}"
                    print(f"{file.state}: {text}")
    if any(check.is_damaged for check in checks):
        raise SystemExit(DAMAGED)


def _check_row(check: FolderCheck) -> list[str]:
    """Return the row of a folder: its state, how many files are intact, and which are not."""
    counts = Counter(file.state for file in check.files)
    names = [f"{file.name} {file.state}" for file in check.files if file.state != "intact"]
    if counts["unverified"] == len(check.files):
        names = ["all unverified: written by an earlier version"]
    return [str(check.path), check.state, f"{counts['intact']} of {len(check.files)} intact", ", ".join(names)]


def _repair_runs(options: argparse.Namespace) -> None:
    from sdssm.runs.integrity import find_folders
    from sdssm.runs.repair import repair_folder

    repairs = [repair for folder in find_folders(options.dir) for repair in repair_folder(folder)]
    if options.json:
        print_json([{"file": str(item.path), "repaired": item.is_done, "text": item.text} for item in repairs])
    else:
        print("\n".join(map(str, repairs)) or "nothing is damaged")
    if not all(repair.is_done for repair in repairs):
        raise SystemExit(DAMAGED)
