"""`sdssm horizon`: the longest strings that a run still tells right, measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.evaluate import whole
from sdssm.cli.output import print_json, print_table, printable
from sdssm.report.rendering import format_percent as percent

if TYPE_CHECKING:
    from sdssm.exact import Horizon

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "horizon",
        help="the longest strings that are still told right",
        description="Reads the same strings at doubling lengths, the state carried on, and says up to which of them "
        "99.9 % of the labels are right; and how the states of a class spread, which predicts it.",
        epilog="sdssm horizon runs/a5/seed-0 --max-length 100000",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("run_folder", metavar="RUN", type=Path, help="the folder of a run, or of a model")
    add("--task", help="the task of a model that has no run, such as one that was compiled")
    add("--max-length", metavar="N", type=whole, default=1_000_000, help="the last length (default 1,000,000)")
    add("--strings", metavar="N", type=whole, default=64, help="strings (default 64)")
    add("--seed", metavar="N", type=whole, default=1, help="seed of the strings (default 1)")
    add("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_horizon)


def _horizon(options: argparse.Namespace) -> None:
    from sdssm.exact import horizon

    found = horizon(
        options.run_folder,
        task=options.task,
        max_length=options.max_length,
        strings=options.strings,
        seed=options.seed,
    )
    if options.json:
        print_json({"run": str(options.run_folder), **found.to_json()})
        return
    _show(found)


def _show(found: Horizon) -> None:
    print(f"{printable(found.task)}: {found.strings} strings, read by {found.method}, in {found.seconds:.0f} s\n")
    rows = [
        [
            f"{one.length:,}",
            f"{one.first:,}-{one.length:,}",
            f"{one.labels:,}",
            percent(one.accuracy),
            _small(one.spread),
        ]
        for one in found.readings
    ]
    print_table(
        ["length", "places read", "labels", "accuracy %", "spread"],
        rows,
        right=("length", "labels", "accuracy %", "spread"),
    )
    print(f"\nThe longest length read with at least 99.9 % right, as at all shorter ones: {found.longest:,}")
    if found.predicted is not None:
        print(f"From the growth of the spread up to length 4,096 one would expect about {found.predicted:,}.")
    print("The spread is that of the states within a class, over the least distance between two classes.")


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
