"""`sdssm horizon`: measure up to which length the predictions of a run stay correct."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sdssm.cli.exact_options import (
    ResultStore,
    add_limit_options,
    add_source_options,
    add_store_option,
    print_note,
    print_result,
)
from sdssm.cli.model_options import import_models
from sdssm.cli.options import declare_command, parse_length, parse_seed, parse_strings
from sdssm.cli.output import print_json
from sdssm.exact.defaults import LONGEST_MEASURED, MEASURED_SEED, MEASURED_STRINGS

if TYPE_CHECKING:
    from sdssm.cli.options import Commands


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "horizon",
        summary="measure the longest strings that are classified correctly",
        description="Read random strings at doubling lengths, and report the longest length at which 99.9 % of the "
        "predictions are still correct. The distance between states of the same class is measured too: its growth "
        "predicts that length. The result of a run that has ended, for its own task, is also written into its folder "
        "as horizon.json, where reports find it. A stored measurement of longer strings, or of more of them, is kept "
        "unless --overwrite is given.",
        examples=["sdssm horizon runs/a5/seed-0 --max-length 100000"],
    )
    add_source_options(parser)
    add = parser.add_argument
    add(
        "--max-length",
        metavar="N",
        type=parse_length,
        default=LONGEST_MEASURED,
        help=f"longest length to read (default: {LONGEST_MEASURED:,})",
    )
    add(
        "--strings",
        metavar="N",
        type=parse_strings,
        default=MEASURED_STRINGS,
        help="number of strings (default: %(default)s)",
    )
    add(
        "--seed",
        metavar="N",
        type=parse_seed,
        default=MEASURED_SEED,
        help="seed of the strings (default: %(default)s)",
    )
    add_store_option(parser, "a stored measurement even if it is of longer strings, or of more of them")
    add_limit_options(parser, "print the lengths read so far")
    parser.set_defaults(run=_horizon)


def _horizon(options: argparse.Namespace) -> None:
    from sdssm.exact import horizon

    import_models([options.run_folder], options)
    store = ResultStore(options.run_folder)
    result = horizon(
        store.source,
        task=options.task,
        max_length=options.max_length,
        strings=options.strings,
        seed=options.seed,
        max_seconds=options.max_seconds,
        progress=not options.quiet,
    )
    note = store.keep(result, overwrite=options.overwrite)
    if options.json:
        noted = {} if note is None else {"storage_note": note}
        print_json({"run": str(options.run_folder), **result.to_json(), **noted})
    else:
        print_result(result.to_table())
        print_note(note)
