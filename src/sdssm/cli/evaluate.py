"""`sdssm evaluate`: the accuracy of runs at every length."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.output import print_json, print_table, printable
from sdssm.errors import format_value
from sdssm.report.rendering import format_percent as percent

if TYPE_CHECKING:
    from sdssm.evaluation import Evaluation, RunEvaluation

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

#: Plots that a reader will look at, one below the other; and lengths that are worth one.
MOST_PLOTS, LEAST_POINTS = 4, 8


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "evaluate",
        help="accuracy at every length",
        description="Accuracy of runs at every length, within and beyond those they were trained on. What is found of "
        "each run is also written into its folder as evaluation.json.",
        epilog="sdssm evaluate runs/a5 --lengths 500,5000,50000 --plot a5.png",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("dirs", metavar="DIR", nargs="+", type=Path, help="run folders, or folders that hold some")
    which = one.add_mutually_exclusive_group()
    which.add_argument("--max-length", metavar="N", type=whole, help="every length up to N (default: the task's, 500)")
    which.add_argument("--lengths", metavar="N,N,...", type=several, help="these lengths alone, up to 1,000,000")
    add("--strings", metavar="N", type=whole, default=512, help="strings for each length (default 512)")
    add("--seed", metavar="N", type=whole, default=1, help="seed of the test strings (default 1)")
    add("--fresh", action="store_true", help="other strings for each length, as published, not prefixes of long ones")
    add("--device", default="auto", help="auto (default), cpu, cuda or cuda:1")
    add("--json", action="store_true", help="print JSON")
    add("--plot", metavar="FILE", type=Path, help="draw accuracy against length there, as .png or .svg")
    one.set_defaults(run=_evaluate)


def whole(text: str) -> int:
    """A whole number; 5_000 and 5000 alike."""
    if not re.fullmatch(r"\d[\d_]{0,20}", text, re.ASCII) or text.endswith("_") or "__" in text:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is not a whole number")
    return int(text)


def several(text: str) -> list[int]:
    """Whole numbers between commas.

    >>> several("500,5000")
    [500, 5000]
    """
    return [whole(part.strip()) for part in text.split(",") if part.strip()]


def _evaluate(options: argparse.Namespace) -> None:
    from sdssm.evaluation import evaluate
    from sdssm.report import check_plot, curves, save_plot, terminal_plot

    if options.plot is not None:
        check_plot(options.plot)  # a wrong name is said before the work begins
    counter = _Counter()
    found = evaluate(
        options.dirs,
        max_length=options.max_length,
        lengths=options.lengths,
        strings=options.strings,
        seed=options.seed,
        fresh=options.fresh,
        device=options.device,
        found=counter.one_more,
    )
    counter.clear()
    data = found.to_json()
    if options.plot is not None:
        save_plot(data, options.plot)
    if options.json:
        print_json(data)
        return
    _tables(found)
    drawn = [curve for curve in curves(data) if len(curve.lengths) >= LEAST_POINTS]
    for curve in drawn[:MOST_PLOTS]:
        print(f"\n{printable_lines(terminal_plot(curve))}")
    if len(drawn) > MOST_PLOTS:
        print(f"\n{len(drawn) - MOST_PLOTS} more in a picture: --plot FILE.png")
    for note in sorted({run.note for run in found if run.note}):
        of = [run.folder for run in found if run.note == note and run.folder]
        print(f"\nNote: {printable(note)}" + (f" ({printable(', '.join(of))})" if len(of) < len(found) else ""))
    if options.plot is not None:
        print(f"\nPlot: {printable(str(options.plot))}")


def _tables(found: Evaluation) -> None:
    """One row a run, then one row a training."""
    first = found.runs[0]
    print(f"Accuracy in % of {first.strings} strings a length, and of that the mean over lengths\n")
    names = _names(found.runs)
    values = [(_row if run.lengths is None else _row_of_lengths)(run) for run in found]
    headers = list(values[0])
    rows = [
        [*name.values(), *(row.get(header, "-") for header in headers)] for name, row in zip(names, values, strict=True)
    ]
    print_table([*names[0], *headers], rows, right=("seed", *headers))
    if len(found) > 1:
        print()
        _summary(found)


def _names(runs: Sequence[RunEvaluation]) -> list[dict[str, str]]:
    """What tells each run from the others: columns beyond task, model and seed only where these do not."""
    from sdssm.report import told_apart

    apart = told_apart([vars(run) for run in runs])
    names = [
        {"task": run.task, "model": run.model}
        | ({"settings": words or "-"} if any(apart) else {})
        | {"seed": "-" if run.seed is None else str(run.seed)}
        for run, words in zip(runs, apart, strict=True)
    ]
    if len({tuple(name.values()) for name in names}) < len(runs) and any(run.folder for run in runs):
        names = [{**name, "folder": run.folder or "-"} for name, run in zip(names, runs, strict=True)]
    return names


def _summary(found: Evaluation) -> None:
    """The best, mean and worst seed of each training; of lengths named one by one, for each of them."""
    from sdssm.evaluation.records import groups

    listed = any(run.lengths is not None for run in found)
    together, aggregate = groups(found.runs), found.aggregate
    names = _names([of[0] for of in together])
    lost = any(one.diverged for one in aggregate)
    rows = []
    for name, of, one in zip(names, together, aggregate, strict=True):
        begin = [*(name[key] for key in name if key not in ("seed", "folder")), str(one.seeds)]
        begin += [str(one.diverged)] if lost else []
        if not listed:
            rows.append([*begin, percent(one.max), percent(one.mean), percent(one.min)])
            continue
        for k, length in enumerate(of[0].at):
            values = [(run.accuracy if run.mean_to is None else run.mean_to)[k] for run in of if not run.diverged]
            rows.append([*begin, f"{length:,}", *map(percent, _spread(values))])
    numbers = ["seeds", *(["diverged"] if lost else [])]
    numbers += ["to length" if found.runs[0].mean_to else "at length"] if listed else []
    numbers += ["max", "mean", "min"]
    print_table([*(key for key in names[0] if key not in ("seed", "folder")), *numbers], rows, right=numbers)


def _spread(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """The best, the mean and the worst, where there are any."""
    if not values or any(map(math.isnan, values)):  # no string is as short: that holds for all seeds
        return None, None, None
    return max(values), math.fsum(values) / len(values), min(values)


def _row(run: RunEvaluation) -> dict[str, str]:
    band = "-" if run.mean_band is None else f"{percent(run.mean_band[0])}-{percent(run.mean_band[1])}"
    return {
        "to length": f"{run.max_length:,}",
        "mean": percent(run.mean),
        "95 % band": band,
        "trained lengths": percent(run.mean_within),
        "beyond": percent(run.mean_beyond),
        "first below 99": "never" if run.first_below_99 is None else f"{run.first_below_99:,}",
        "radius": _radius(run),
    }


def _row_of_lengths(run: RunEvaluation) -> dict[str, str]:
    row = {f"at {length:,}": percent(value) for length, value in zip(run.at, run.accuracy, strict=True)}
    if run.mean_to is not None:
        row |= {f"mean to {length:,}": percent(value) for length, value in zip(run.at, run.mean_to, strict=True)}
    return {**row, "radius": _radius(run)}


def _radius(run: RunEvaluation) -> str:
    """The greatest spectral radius of a symbol's matrix."""
    return "-" if run.spectral_radius is None else f"{max(run.spectral_radius):.3f}"


def printable_lines(text: str) -> str:
    """`printable`, of a text that has lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


class _Counter:
    """How many runs were evaluated, on a terminal that shows it."""

    def __init__(self) -> None:
        self._count = 0
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def one_more(self, run: RunEvaluation) -> None:
        self._count += 1
        if self._shown:
            print(f"\r{self._count} evaluated", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print("\r" + " " * 30 + "\r", end="", file=sys.stderr, flush=True)
