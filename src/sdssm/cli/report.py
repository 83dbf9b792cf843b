"""`sdssm report`: write one HTML page about runs and experiments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import declare_command, parse_number
from sdssm.cli.output import check_suffix, print_text, quote_argument
from sdssm.files import check_output_folder
from sdssm.formatting import count_of
from sdssm.printable import make_printable
from sdssm.report.page.page_size import MAX_MB

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.report.page.page_types import ReportData, RunData

#: What a run may lack: what that is called, the command to get it, and whether a run has it.
FINDINGS: tuple[tuple[str, str, Callable[[RunData], bool]], ...] = (
    ("were not evaluated", "evaluate", lambda run: run["max_length"] is not None),
    ("have no extraction", "extract", lambda run: run["extraction"] is not None),
    ("have no certificate", "certify", lambda run: run["certified"] is not None or run["model"] != "sd-ssm"),
    ("have no measured horizon", "horizon", lambda run: run["horizon"] is not None),
)
#: Problems that are printed; the page has all of them.
MOST_PROBLEMS = 10


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "report",
        summary="write a page about runs and experiments",
        description="Write one HTML page about runs and results of experiments: curves, tables, matrices, states and a "
        "playground. The file needs no network and no server: open it in a browser. The page only reads; evaluate, "
        "extract, certify and horizon find out what it shows.",
        examples=["sdssm report", "sdssm report runs/a5 results/table1 -o a5.html --title 'A5'"],
    )
    add = parser.add_argument
    add(
        "paths",
        metavar="DIR",
        nargs="*",
        type=Path,
        default=[Path("runs")],
        help="run folder, results folder, or folder that contains such folders (default: runs)",
    )
    add(
        "-o",
        "--out",
        metavar="FILE",
        type=Path,
        default=Path("report.html"),
        help="write the page into this .html file (default: %(default)s)",
    )
    add("--title", metavar="TEXT", default="sdssm report", help="title of the page (default: %(default)s)")
    add(
        "--max-mb",
        metavar="MB",
        type=parse_number,
        default=MAX_MB,
        help="largest size of the page; what does not fit is left out (default: %(default)s)",
    )
    parser.set_defaults(run=_write_report)


def _write_report(options: argparse.Namespace) -> None:
    from sdssm.report.page.writing import write_report

    check_page_path(options.out)
    contents = write_report(
        options.paths, options.out, title=options.title, max_mb=options.max_mb, command=options.typed
    )
    data = contents.data
    size = f"{options.out.stat().st_size / 1e6:.1f} MB"
    counts = [
        count_of(len(data[name]), noun)  # type: ignore[literal-required]  # names of lists
        for name, noun in (("runs", "run"), ("tasks", "task"), ("tables", "table"))
        if data[name]  # type: ignore[literal-required]
    ]
    print(f"{make_printable(str(options.out))}: {', '.join(counts)}; {size}")
    _print_gaps(data)


def _print_gaps(data: ReportData) -> None:
    """Print what the page does not show, and the commands that change it."""
    ended = [run for run in data["runs"] if run["folder"] is not None and run["status"] in ("finished", "stopped")]
    for words, command, is_there in FINDINGS:
        lacking = [run for run in ended if not is_there(run)]
        if lacking:
            folder = quote_argument(lacking[0]["folder"])
            words = words if len(lacking) != 1 else words.replace("have", "has").replace("were", "was")
            print_text(f"{count_of(len(lacking), 'run')} {words}: sdssm {command} {folder}")
    for note in data["notes"]:
        print_text(note)
    problems = [f"{problem['path']}: {problem['message']}" for problem in data["problems"]]
    problems += [f"{run['source']}: {problem}" for run in data["runs"] for problem in run["problems"]]
    for problem in problems[:MOST_PROBLEMS]:
        print_text(f"problem: {problem}")
    if len(problems) > MOST_PROBLEMS:
        print_text(f"The page lists {count_of(len(problems) - MOST_PROBLEMS, 'further problem')}.")


def check_page_path(path: Path) -> None:
    """Raise an error if a page cannot be written as this file, before anything is read."""
    check_suffix("--out", path, (".html", ".htm"), "a page")
    check_output_folder(path)
