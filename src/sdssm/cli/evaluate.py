"""`sdssm evaluate`: measure the accuracy of runs at every length."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from sdssm.cli.options import (
    DEVICE_HELP,
    JSON_HELP,
    declare_command,
    parse_device,
    parse_whole_number,
    parse_whole_numbers,
)
from sdssm.cli.output import make_lines_printable, make_printable, print_json, print_table, quote_argument
from sdssm.formatting import format_chance, format_percent

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.evaluation import Evaluation, RunEvaluation

#: Plots that are printed at most, and the lengths that a plot needs at least.
MOST_PLOTS, LEAST_POINTS = 4, 8
#: Below a table with the column "radius".
RADIUS_NOTE = "radius: the largest absolute eigenvalue of a symbol's matrix; above 1 states can grow"


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
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--max-length",
        metavar="N",
        type=parse_whole_number,
        help="test every length up to N (default: the task's, 500)",
    )
    lengths.add_argument(
        "--lengths",
        metavar="N,N,...",
        type=parse_whole_numbers,
        help="test only these lengths, up to 1,000,000",
    )
    add(
        "--strings", metavar="N", type=parse_whole_number, default=512, help="strings per length (default: %(default)s)"
    )
    add("--seed", metavar="N", type=parse_whole_number, default=1, help="seed of the strings (default: %(default)s)")
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
        choices=("auto", "accuracy", "error", "both"),
        default="auto",
        help="what --plot shows: accuracy, the error rate on a logarithmic axis, or both (default: the error rate too "
        "if accuracies are near 100 %%)",
    )
    parser.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> None:
    from sdssm.report import check_plot, make_curves, save_plot, terminal_plot

    if options.plot is not None:
        check_plot(options.plot)  # a wrong file name is reported before the evaluation, not after it
    evaluation = _measure(options)
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
    for note in sorted({run.note for run in evaluation if run.note}):
        folders = [run.folder for run in evaluation if run.note == note and run.folder]
        suffix = f" ({make_printable(', '.join(folders))})" if len(folders) < len(evaluation) else ""
        print(f"\nNote: {make_printable(note)}{suffix}")
    if options.plot is not None:
        print(f"\nPlot: {make_printable(str(options.plot))}")


def _measure(options: argparse.Namespace) -> Evaluation:
    """Evaluate what the options name; errors about the task give advice for the command line."""
    from sdssm.evaluation import EvaluationError, evaluate
    from sdssm.evaluation.sources import MissingTaskError, OwnTaskError

    try:
        return evaluate(
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
    except MissingTaskError as error:
        folder = quote_argument(error.folder)
        raise EvaluationError(
            f"{folder} holds a model without its task; add it, as in sdssm evaluate {folder} --task a5"
        ) from None
    except OwnTaskError as error:
        raise EvaluationError(
            f"{quote_argument(error.folder)} is a run and knows its own task; leave --task out"
        ) from None


def _show_tables(evaluation: Evaluation) -> None:
    """Print one row for each run, then one row for each training."""
    print(f"Accuracy in %, measured on {evaluation.runs[0].strings} strings for each length; means are over lengths\n")
    names = _names(evaluation.runs)
    values = [(_values if run.lengths is None else _values_at_lengths)(run) for run in evaluation]
    headers = list(values[0])
    rows = [
        [*name.values(), *(row.get(header, "-") for header in headers)] for name, row in zip(names, values, strict=True)
    ]
    print_table([*names[0], *headers], rows, right=("seed", *headers))
    if len(evaluation) > 1:
        print()
        _show_summary(evaluation)
    if any(run.spectral_radius is not None for run in evaluation):
        print(f"\n{RADIUS_NOTE}")


def _names(runs: Sequence[RunEvaluation]) -> list[dict[str, str]]:
    """Return the columns that identify each run: task, model, seed, and more if these do not suffice."""
    from sdssm.report import describe_differences

    differences = describe_differences([vars(run) for run in runs])
    names = [
        {"task": run.task, "model": run.model}
        | ({"settings": words or "-"} if any(differences) else {})
        | {"seed": "-" if run.seed is None else str(run.seed)}
        for run, words in zip(runs, differences, strict=True)
    ]
    if len({tuple(name.values()) for name in names}) < len(runs) and any(run.folder for run in runs):
        names = [{**name, "folder": run.folder or "-"} for name, run in zip(names, runs, strict=True)]
    return names


def _show_summary(evaluation: Evaluation) -> None:
    """Print the best, mean and worst seed of each training, over all lengths or at each listed one."""
    from sdssm.evaluation.records import group_by_training

    listed = any(run.lengths is not None for run in evaluation)
    trainings, aggregates = group_by_training(evaluation.runs), evaluation.aggregate
    names = _names([runs[0] for runs in trainings])
    any_diverged = any(aggregate.diverged for aggregate in aggregates)
    rows = []
    for name, runs, aggregate in zip(names, trainings, aggregates, strict=True):
        cells = [*(name[key] for key in name if key not in ("seed", "folder")), str(aggregate.seeds)]
        cells += [str(aggregate.diverged)] if any_diverged else []
        chance = format_chance(runs[0].chance)
        if not listed:
            rows.append(
                [
                    *cells,
                    format_percent(aggregate.max),
                    format_percent(aggregate.mean),
                    format_percent(aggregate.min),
                    chance,
                ]
            )
            continue
        for k, length in enumerate(runs[0].evaluated_lengths):
            values = [(run.accuracy if run.mean_to is None else run.mean_to)[k] for run in runs if not run.diverged]
            rows.append([*cells, f"{length:,}", *map(format_percent, _max_mean_min(values)), chance])
    numbers = ["seeds", *(["diverged"] if any_diverged else [])]
    numbers += ["to length" if evaluation.runs[0].mean_to else "at length"] if listed else []
    numbers += ["max", "mean", "min", "chance"]
    print_table([*(key for key in names[0] if key not in ("seed", "folder")), *numbers], rows, right=numbers)


def _max_mean_min(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values or any(map(math.isnan, values)):  # NaN: the task has no string as short, for any seed
        return None, None, None
    return max(values), math.fsum(values) / len(values), min(values)


def _values(run: RunEvaluation) -> dict[str, str]:
    """Return the cells of a run that was measured at every length."""
    band = "-" if run.mean_band is None else f"{format_percent(run.mean_band[0])}-{format_percent(run.mean_band[1])}"
    return {
        "to length": f"{run.max_length:,}",
        "mean": format_percent(run.mean),
        "95 % band": band,
        "trained lengths": format_percent(run.mean_within),
        "beyond": format_percent(run.mean_beyond),
        "chance": format_chance(run.chance),
        "first below 99": "never" if run.first_below_99 is None else f"{run.first_below_99:,}",
        "radius": _radius(run),
    }


def _values_at_lengths(run: RunEvaluation) -> dict[str, str]:
    """Return the cells of a run that was measured at listed lengths."""
    row = {
        f"at {length:,}": format_percent(value)
        for length, value in zip(run.evaluated_lengths, run.accuracy, strict=True)
    }
    if run.mean_to is not None:
        row |= {
            f"mean to {length:,}": format_percent(value)
            for length, value in zip(run.evaluated_lengths, run.mean_to, strict=True)
        }
    return {**row, "chance": format_chance(run.chance), "radius": _radius(run)}


def _radius(run: RunEvaluation) -> str:
    """Return the largest spectral radius of a symbol's matrix."""
    return "-" if run.spectral_radius is None else f"{max(run.spectral_radius):.3f}"
