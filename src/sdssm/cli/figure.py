"""`sdssm figure`: draw figures for papers from run folders."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import declare_command, parse_strings, whole_number_between
from sdssm.cli.output import print_text
from sdssm.printable import make_printable
from sdssm.report.figures import FigureOptions
from sdssm.report.views import VIEWS

if TYPE_CHECKING:
    from sdssm.cli.options import Commands

#: The figures, with what each shows and needs.
KINDS = {
    "accuracy": "accuracy against length, over seeds (after sdssm evaluate)",
    "automaton": "the state diagram of the task, beside it the extracted one (after sdssm extract)",
    "matrices": "the matrix of each symbol of an SD-SSM as a heat map",
    "states": "the model's states in two dimensions at several lengths (after sdssm evaluate)",
    "eigenvalues": "the eigenvalues of each symbol's matrix of an SD-SSM",
}

DEFAULTS = FigureOptions()


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "figure",
        summary="draw figures for papers from runs",
        description="Draw a figure as PDF, SVG or PNG that fits into one or two columns of a paper: letters of at "
        "least 7 pt, text as text, colours that colour-blind readers can distinguish. The same runs give the same "
        "file. " + " ".join(f"{kind}: {text}." for kind, text in KINDS.items()),
        examples=[
            "sdssm figure accuracy runs/a5 runs/a5-lstm -o accuracy.pdf",
            "sdssm figure states runs/a5/seed-0 --columns 1 -o states.svg",
            "sdssm figure matrices runs/a5/seed-0 --dictionary -o dictionary.png",
        ],
    )
    add = parser.add_argument
    add("kind", metavar="FIGURE", choices=tuple(KINDS), help=", ".join(KINDS))
    add("runs", metavar="RUN", nargs="+", type=Path, help="run folder, or a folder that contains run folders")
    add("-o", "--out", metavar="FILE", type=Path, required=True, help="a .pdf, .svg or .png file")
    add(
        "--columns",
        type=whole_number_between(1, 2),
        default=DEFAULTS.columns,
        help="width: 1 is 3.3 in, 2 is 7 in (default: %(default)s)",
    )
    add(
        "--view",
        choices=VIEWS,
        default=DEFAULTS.view,
        help="what accuracy shows: accuracy, the error rate on a logarithmic axis, or both (default: the error rate "
        "too if accuracies are near 100 %%)",
    )
    add(
        "--dictionary",
        action="store_true",
        help="matrices and eigenvalues: of the dictionary instead of the symbols",
    )
    add(
        "--strings",
        metavar="N",
        type=parse_strings,
        default=DEFAULTS.strings,
        help="states: points of each length, at most (default: %(default)s)",
    )
    parser.set_defaults(run=_draw)


def _draw(options: argparse.Namespace) -> None:
    from sdssm.report import check_plot
    from sdssm.report.figures import make_run_figure

    check_plot(options.out)  # a wrong file name is reported before anything is drawn
    chosen = FigureOptions(
        columns=options.columns, view=options.view, dictionary=options.dictionary, strings=options.strings
    )
    drawn = make_run_figure(options.kind, options.runs, chosen)
    drawn.save(options.out)
    width, height = drawn.size
    print(f"Figure: {make_printable(str(options.out))}, {width:.1f} by {height:.1f} in")
    print_text(f"Caption: {drawn.caption}")
