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
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.registry import plugin_paths
from sdssm.printable import make_printable
from sdssm.report.page.page_size import MAX_MB
from sdssm.report.page.symbol_matrices import is_single_sd_ssm
from sdssm.runs.own_files import STATES_FILE

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.report.page.collecting import PageContents
    from sdssm.report.page.page_types import RunData
    from sdssm.report.page.run_data import PageRun

#: Models of the catalogue that carry no state from one symbol to the next: they have no states to extract.
STATELESS = ("transformer", "hyena")


def _is_extractable(run: PageRun) -> bool:
    """Return whether `sdssm extract` and `sdssm horizon` can read the run, as far as its folder says."""
    config = run.config
    if config is None or config.has_random_start:
        return False
    if isinstance(config.model, ModuleSettings):  # its states are stored by an evaluation if it carries any
        return run.path is not None and (run.path / STATES_FILE).exists()
    return config.model.name not in STATELESS


def _is_certifiable(run: PageRun) -> bool:
    return run.config is not None and is_single_sd_ssm(run.config.model)


#: What a run may lack: what that is called, the command to get it, whether a run has it, and whether it can have it.
FINDINGS: tuple[tuple[str, str, Callable[[RunData], bool], Callable[[PageRun], bool]], ...] = (
    ("were not evaluated", "evaluate", lambda run: run["max_length"] is not None, lambda run: True),
    ("have no extraction", "extract", lambda run: run["extraction"] is not None, _is_extractable),
    ("have no certificate", "certify", lambda run: run["certified"] is not None, _is_certifiable),
    ("have no measured horizon", "horizon", lambda run: run["horizon"] is not None, _is_extractable),
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
    _print_gaps(contents)


def _is_loadable(run: PageRun) -> bool:
    """Return whether a command can load the model: not if its code was defined in a session or inside a function."""
    model = None if run.config is None else run.config.model
    return model is not None and not (isinstance(model, ModuleSettings) and model.import_path is None)


def _print_gaps(contents: PageContents) -> None:
    """Print what the page does not show, and the commands that change it."""
    data, plugins = contents.data, plugin_paths()
    ended = [
        run
        for run in contents.runs.values()
        if run.data["folder"] is not None and run.data["status"] in ("finished", "stopped") and _is_loadable(run)
    ]
    for words, command, is_there, is_possible in FINDINGS:
        lacking = [run for run in ended if not is_there(run.data) and is_possible(run)]
        if lacking:
            first = lacking[0]
            model = None if first.config is None else first.config.model
            is_foreign = isinstance(model, ModuleSettings) and model.import_path != plugins.get(model.name)
            hint = f"sdssm {command} {quote_argument(first.path)}{' --trust' if is_foreign else ''}"
            words = words if len(lacking) != 1 else words.replace("have", "has").replace("were", "was")
            print_text(f"{count_of(len(lacking), 'run')} {words}: {hint}")
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
