"""`sdssm evaluate`: measure the accuracy of runs at every length."""

from __future__ import annotations

import argparse
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from sdssm.cli.model_options import add_trust_options, import_models
from sdssm.cli.options import (
    DEVICE_HELP,
    JSON_HELP,
    declare_command,
    parse_device,
    parse_length,
    parse_lengths,
    parse_seed,
    parse_strings,
)
from sdssm.cli.output import print_json, print_table, print_text
from sdssm.formatting import BEST_CONSTANT
from sdssm.printable import make_lines_printable, make_printable
from sdssm.report.views import VIEWS

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.evaluation import Evaluation

#: Plots that are printed at most, and the lengths that a plot needs at least.
MOST_PLOTS, LEAST_POINTS = 4, 8
#: Runs that are not finished and whose step is printed above the table.
MOST_UNFINISHED = 5
#: Below a table with these measures.
MEASURES_NOTE = (
    "balanced: on strings whose labels are equally frequent; balanced chance: what any constant answer scores on them; "
    "accuracy: on uniform strings; covering: on strings whose last transitions are equally frequent; covering "
    f"constant: the best constant on these; {BEST_CONSTANT}"
)
#: Below a table with the column "radius".
RADIUS_NOTE = (
    "radius: the largest absolute eigenvalue of a symbol's matrix; above 1 a state that is not rescaled can grow"
)


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "evaluate",
        summary="measure accuracy at every length",
        description="Measure the accuracy of runs at every length, up to and beyond the lengths of training. The "
        "result of a run that has ended is also written into its folder: as evaluation.json, or with --lengths as "
        "evaluation-lengths.json. A stored result with longer strings, or more of them, is kept unless --overwrite is "
        "given.",
        examples=[
            "sdssm evaluate runs/a5",
            "sdssm evaluate runs/a5 --lengths 500,5000,50000 --plot a5.png",
            "sdssm evaluate models/a5 --task a5",
        ],
    )
    add = parser.add_argument
    add(
        "dirs",
        metavar="DIR",
        nargs="+",
        type=Path,
        help="run folder, a folder that contains run folders, or the folder of a saved model",
    )
    add("--task", metavar="TASK", help="task of saved models that were stored without one; runs know their own")
    add_trust_options(parser)
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--max-length",
        metavar="N",
        type=parse_length,
        help="test every length up to N (default: the task's, 500)",
    )
    lengths.add_argument(
        "--lengths",
        metavar="N,N,...",
        type=parse_lengths,
        help="test only these lengths, up to 1,000,000",
    )
    add("--strings", metavar="N", type=parse_strings, default=512, help="strings per length (default: %(default)s)")
    add("--seed", metavar="N", type=parse_seed, default=1, help="seed of the strings (default: %(default)s)")
    add(
        "--fresh", action="store_true", help="draw new strings for each length instead of reading prefixes of long ones"
    )
    add("--device", default="auto", type=parse_device, help=DEVICE_HELP)
    add("--json", action="store_true", help=JSON_HELP)
    add(
        "--overwrite", action="store_true", help="replace a stored result even if it has longer strings or more of them"
    )
    add("--quiet", action="store_true", help="show no progress")
    add("--plot", metavar="FILE", type=Path, help="plot accuracy against length into a .png, .svg or .pdf file")
    add(
        "--view",
        choices=VIEWS,
        default="auto",
        help="what --plot shows: accuracy, the error rate on a logarithmic axis, or both (default: the error rate too "
        "if accuracies are near 100 %%)",
    )
    parser.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> None:
    from sdssm.evaluation import evaluate
    from sdssm.evaluation.tables import collect_notes, is_unfinished
    from sdssm.report import check_plot, make_curves, save_plot, terminal_plot

    if options.plot is not None:
        check_plot(options.plot)  # a wrong file name is reported before the evaluation, not after it
    import_models(options.dirs, options)
    evaluation = evaluate(
        options.dirs,
        task=options.task,
        max_length=options.max_length,
        lengths=options.lengths,
        strings=options.strings,
        seed=options.seed,
        fresh=options.fresh,
        device=options.device,
        overwrite=options.overwrite,
        progress=not options.quiet,
    )
    data = evaluation.to_json()
    if options.plot is not None:
        save_plot(data, options.plot, view=options.view)
    if options.json:
        print_json(data)
        return
    _show_tables(evaluation)
    plotted = [curve for curve in make_curves(data) if len(curve.lengths) >= LEAST_POINTS]
    for curve in plotted[:MOST_PLOTS]:
        print(f"\n{make_lines_printable(terminal_plot(curve, width=get_terminal_size().columns))}")
    if len(plotted) > MOST_PLOTS:
        print(f"\n{len(plotted) - MOST_PLOTS} more curves are not shown here; --plot FILE.png draws all")
    for note in collect_notes([run for run in evaluation.runs if not is_unfinished(run)]):
        print()
        print_text(f"Note: {note}")
    if options.plot is not None:
        print(f"\nPlot: {make_printable(str(options.plot))}")


def _show_tables(evaluation: Evaluation) -> None:
    """Print one row for each run, then one row for each training."""
    from sdssm.evaluation.records import group_by_training
    from sdssm.evaluation.tables import is_unfinished, tabulate_evaluations, tabulate_trainings
    from sdssm.report import describe_differences

    runs = evaluation.runs
    table = tabulate_evaluations(runs, settings=describe_differences([vars(run) for run in runs]), detailed=True)
    print_text(table.title)
    unfinished = [run for run in runs if is_unfinished(run)]
    for run in unfinished[:MOST_UNFINISHED]:
        print_text(f"Note: {run.folder}: {run.note}")
    if len(unfinished) > MOST_UNFINISHED:
        print(f"{len(unfinished) - MOST_UNFINISHED} more runs are not finished; see the column status")
    print()
    left_out = print_table(table.headers, table.rows, right=table.right)
    if len(runs) > 1:
        trainings = group_by_training(runs)
        settings = describe_differences([vars(training[0]) for training in trainings])
        summary = tabulate_trainings(trainings, evaluation.aggregate, settings=settings)
        print()
        print_table(summary.headers, summary.rows, right=summary.right)
    if "balanced" in table.headers:
        print()
        print_text(MEASURES_NOTE)
    if "radius" in table.headers and "radius" not in left_out:
        print()
        print_text(RADIUS_NOTE)
