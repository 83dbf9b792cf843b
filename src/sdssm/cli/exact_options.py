"""What `sdssm certify`, `compile`, `extract`, `horizon` and `snap` share: options, how results print and are kept."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.model_options import add_trust_options
from sdssm.cli.options import JSON_HELP, RUN_HELP
from sdssm.cli.output import print_table, print_text
from sdssm.errors import format_value

if TYPE_CHECKING:
    from sdssm.display import ResultTable
    from sdssm.exact.stored import ExactResult
    from sdssm.runs import RunFolder

TASK_HELP = "the task, if the folder does not say it, or another task, such as a5 or my.json"
OVERWRITE_HELP = "replace the model in the folder"
#: The most seconds of a time limit: a year.
MOST_SECONDS = 31_536_000


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add RUN, --task, --model and --trust: the model, its task, and the code that may be imported for it."""
    parser.add_argument("run_folder", metavar="RUN", type=Path, help=RUN_HELP)
    parser.add_argument("--task", help=TASK_HELP)
    add_trust_options(parser)


def add_limit_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --max-seconds, --quiet and --json; `what` says what is printed when the time is up."""
    parser.add_argument(
        "--max-seconds",
        metavar="N",
        type=parse_seconds,
        help=f"stop after about this time and {what} (default: no limit)",
    )
    add_display_options(parser)


def add_store_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --overwrite; `what` says which stored result is kept without it."""
    parser.add_argument("--overwrite", action="store_true", help=f"replace {what}")


class ResultStore:
    """The run folder, if it is one, that a result for the run's own task is written into.

    Build it before the weights are read: if training continues meanwhile, the result is not stored.
    """

    def __init__(self, path: Path) -> None:
        from sdssm.models.saved import is_model_folder
        from sdssm.runs.single import folder_path, only_run

        path = folder_path(path)
        run = None if is_model_folder(path) else only_run(path)
        self.source: RunFolder | Path = path if run is None else run  #: what to read the model from
        self._run, self._status = run, None if run is None else run.status

    def keep(self, result: ExactResult, *, overwrite: bool) -> str | None:
        """Write a result into the run folder; return a note if it is not written although it is for its own task."""
        from sdssm.exact import store_result

        if self._run is None or result.digest != self._run.config.digest:
            return None
        return store_result(self._run, result, overwrite=overwrite, status=self._status)


def add_display_options(parser: argparse.ArgumentParser) -> None:
    """Add --quiet and --json."""
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def parse_seconds(text: str) -> float:
    """Parse a number of seconds from 0 to a year.

    >>> parse_seconds("2.5")
    2.5
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is not a number of seconds, such as 60")
    return value


def print_result(table: ResultTable) -> None:
    """Print a result: its title, its table and its notes; on a terminal, lines break between words."""
    for line in table.title.split("\n") if table.title else ():
        print_text(line)
    if table.rows:
        print_table(table.headers, table.rows, right=table.right)
    for note in table.notes:
        print_text(note)


def print_note(note: str | None) -> None:
    """Print why a result was not stored, if it was not."""
    if note is not None:
        print_text(f"Note: {note}")
