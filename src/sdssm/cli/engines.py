"""The options that say where a plan runs, the same for every command that runs one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sdssm.experiments.execution.executors import Engine


def add_engine(parser: argparse.ArgumentParser) -> None:
    """--engine and --address; the command has --device and --workers of its own."""
    add = parser.add_argument
    add("--engine", metavar="NAME", default="local", help="local (default), or ray: the nodes of a Ray cluster")
    add(
        "--address",
        metavar="HOST:PORT",
        help="of the Ray cluster (default: RAY_ADDRESS if it is set, else a new one on this machine)",
    )


def engine_of(options: argparse.Namespace) -> Engine:
    """The engine that the options name. Nothing is begun before it is entered."""
    from sdssm.experiments.execution.executors import engine_named

    return engine_named(options.engine, device=options.device, workers=options.workers, address=options.address)
