"""What `sdssm certify`, `compile`, `extract`, `horizon` and `snap` share: options, and how results print."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sdssm.cli.options import JSON_HELP
from sdssm.cli.output import print_table, print_text
from sdssm.errors import format_value

if TYPE_CHECKING:
    from sdssm.display import ResultTable

TASK_HELP = "the task, if the folder does not say it, or another task, such as a5 or my.json"
OVERWRITE_HELP = "replace the model in the folder"
#: The most seconds of a time limit: a year.
MOST_SECONDS = 31_536_000


def add_limit_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --max-seconds, --quiet and --json; `what` says what is printed when the time is up."""
    parser.add_argument(
        "--max-seconds",
        metavar="N",
        type=parse_seconds,
        help=f"stop after about this time and {what} (default: no limit)",
    )
    add_display_options(parser)


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
