"""`sdssm playground`: write a page on which trained models run in the browser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import declare_command
from sdssm.cli.output import print_text
from sdssm.cli.report import check_page_path
from sdssm.errors import RunError
from sdssm.files import write_output
from sdssm.formatting import count_of
from sdssm.printable import make_printable

if TYPE_CHECKING:
    from sdssm.cli.options import Commands


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "playground",
        summary="write a page on which models read strings in the browser",
        description="Write one HTML page on which the models of runs read strings step by step, beside the automaton: "
        "one sees where a model makes its first mistake, and what noise does to it. Two models of a task are shown "
        "side by side. The file needs no network and no server: open it in a browser.",
        examples=[
            "sdssm playground runs/a5/seed-0",
            "sdssm playground runs/parity/seed-0 runs/parity-complex-diagonal/seed-0 -o parity.html",
        ],
    )
    add = parser.add_argument
    add("paths", metavar="RUN", nargs="+", type=Path, help="run folder, or a folder that contains run folders")
    add(
        "-o",
        "--out",
        metavar="FILE",
        type=Path,
        default=Path("playground.html"),
        help="write the page into this .html file (default: %(default)s)",
    )
    add("--title", metavar="TEXT", default="sdssm playground", help="title of the page (default: %(default)s)")
    parser.set_defaults(run=_write_playground)


def _write_playground(options: argparse.Namespace) -> None:
    check_page_path(options.out)

    from sdssm.report.page.html_page import render_page
    from sdssm.report.page.playground_data import collect_playground

    contents = collect_playground(options.paths, title=options.title)
    data, problems = contents.data, [f"{problem['path']}: {problem['message']}" for problem in contents.problems]
    if not data["entries"]:
        raise RunError(f"there is no model to play with; {problems[0] if problems else 'train one with sdssm train'}")
    page = render_page("playground", data["title"], data).encode()
    write_output(options.out, page)
    size = f"{len(page) / 1e6:.1f} MB"
    print(f"{make_printable(str(options.out))}: {count_of(len(data['entries']), 'model')}; {size}")
    for problem in problems:
        print_text(f"left out: {problem}")
