"""Options of the commands that train experiments, and what they mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import DEVICES_HELP, parse_budget, parse_devices, parse_parallel, parse_seeds
from sdssm.experiments.default_folders import OUT, RESULTS, RUNS

if TYPE_CHECKING:
    from sdssm.experiments import Selection
    from sdssm.experiments.execution.executors import Executor


def add_experiment_options(parser: argparse.ArgumentParser, default_seeds: str = "the experiment's") -> None:
    """Add the options that every command that trains experiments has.

    `default_seeds` describes the default of --seeds in the help.
    """
    add = parser.add_argument
    add("--dry-run", action="store_true", help="print what would be trained and an estimate of the time, then exit")
    add(
        "--budget",
        metavar="X",
        type=parse_budget,
        default=1.0,
        help="multiply the training steps by X; 0.05 trains a twentieth (default: 1)",
    )
    add("--models", metavar="MODEL", nargs="+", help="only these models of the experiment")
    add("--rows", metavar="ROW", nargs="+", help="only these rows of its table, by their labels")
    add("--tasks", metavar="TASK", nargs="+", help="only these tasks of the experiment")
    add(
        "--seeds",
        metavar="N",
        type=parse_seeds,
        help=f"number of seeds, or a list such as 0,1,5 (default: {default_seeds})",
    )
    add("--device", default="auto", type=parse_devices, help=DEVICES_HELP)
    add(
        "--out",
        metavar="DIR",
        type=Path,
        default=OUT,
        help="parent of the run folders, shared by all experiments (default: %(default)s)",
    )
    add(
        "--reuse",
        metavar="DIR",
        type=Path,
        nargs="*",
        help=f"take finished runs with the same settings from these folders; without DIR, from none (default: {RUNS})",
    )
    add("--results", metavar="DIR", type=Path, default=RESULTS, help="folder for tables (default: %(default)s)")
    add(
        "--workers",
        metavar="N",
        type=parse_parallel,
        help="processes that evaluate runs (default: 1; for mlregtest one for each core but one)",
    )
    add("--quiet", action="store_true", help="print no progress")
    add("--engine", metavar="NAME", default="local", help="local, or ray for a Ray cluster (default: %(default)s)")
    add(
        "--address",
        metavar="HOST:PORT",
        help="address of the Ray cluster (default: RAY_ADDRESS if it is set, else a new cluster on this machine)",
    )


def make_executor(options: argparse.Namespace) -> Executor:
    """Return the executor that --engine names; it starts nothing before it is entered."""
    from sdssm.experiments.execution.executors import get_executor

    return get_executor(options.engine, device=options.device, workers=options.workers or 1, address=options.address)


def make_selection(options: argparse.Namespace) -> Selection:
    """Return the part of an experiment that is trained."""
    from sdssm.experiments import Selection

    return Selection(
        models=options.models, rows=options.rows, tasks=options.tasks, seeds=options.seeds, budget=options.budget
    )


def selection_arguments(options: argparse.Namespace) -> list[str]:
    """Return the selected part of an experiment as arguments of a command, for the results."""
    arguments = [] if options.budget == 1.0 else ["--budget", f"{options.budget:g}"]
    for name in ("models", "rows", "tasks"):
        values = getattr(options, name)
        arguments += [f"--{name}", *values] if values else []
    if options.seeds is not None:
        seeds = options.seeds if isinstance(options.seeds, int) else ",".join(map(str, options.seeds)) + ","
        arguments += ["--seeds", str(seeds)]
    return arguments


def spec_argument(text: str) -> str:
    """Return an experiment as the results record it: the name of a TOML file without its folder."""
    return Path(text).name if text.endswith(".toml") else text
