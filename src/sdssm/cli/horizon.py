"""`sdssm horizon`: measure up to which length the predictions of a run stay correct."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import JSON_HELP, RUN_HELP, declare_command, parse_whole_number
from sdssm.cli.output import format_chance_level, make_printable, print_json, print_table
from sdssm.report.rendering import format_percent

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.exact import Horizon


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "horizon",
        summary="measure the longest strings that are classified correctly",
        description="Read random strings at doubling lengths, and report the longest length at which 99.9 % of the "
        "predictions are still correct. The distance between states of the same class is measured too: its growth "
        "predicts that length.",
        examples=["sdssm horizon runs/a5/seed-0 --max-length 100000"],
    )
    add = parser.add_argument
    add("run_folder", metavar="RUN", type=Path, help=RUN_HELP)
    add("--task", help="task of a saved model, such as a compiled one; not needed for a run")
    add(
        "--max-length",
        metavar="N",
        type=parse_whole_number,
        default=1_000_000,
        help="longest length to read (default: 1,000,000)",
    )
    add("--strings", metavar="N", type=parse_whole_number, default=64, help="number of strings (default: %(default)s)")
    add("--seed", metavar="N", type=parse_whole_number, default=1, help="seed of the strings (default: %(default)s)")
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_horizon)


def _horizon(options: argparse.Namespace) -> None:
    from sdssm.exact import horizon
    from sdssm.exact.sources import load_source

    result = horizon(
        options.run_folder,
        task=options.task,
        max_length=options.max_length,
        strings=options.strings,
        seed=options.seed,
    )
    if options.json:
        print_json({"run": str(options.run_folder), **result.to_json()})
        return
    model, _ = load_source(options.run_folder)
    _show(result, format_chance_level(model.n_classes))


def _show(result: Horizon, chance: str) -> None:
    print(f"{make_printable(result.task)}: {result.strings} strings, {result.method}, {result.seconds:.0f} s\n")
    rows = [
        [
            f"{reading.length:,}",
            f"{reading.first:,}-{reading.length:,}",
            f"{reading.labels:,}",
            format_percent(reading.accuracy),
            "-" if reading.spread is None else f"{reading.spread:.4f}",
        ]
        for reading in result.readings
    ]
    headers = ["length", "positions", "labels", "accuracy %", "distance"]
    print_table(headers, rows, right=("length", "labels", "accuracy %", "distance"))
    print(f"\nLongest length with an accuracy of at least 99.9 %, as at all shorter ones: {result.longest:,}")
    if result.predicted is not None:
        print(f"Predicted from the growth of the distance up to length 4,096: about {result.predicted:,}")
    print(f"Chance level of the accuracy: {chance} %")
    print("Distance: between states of the same class, relative to the distance of the two closest classes.")
