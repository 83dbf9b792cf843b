"""`sdssm certify`: prove up to which length every valid string is classified correctly."""

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
from sdssm.cli.options import declare_command, whole_number_between
from sdssm.cli.output import print_json
from sdssm.exact.defaults import LONGEST_SEARCH, SHORT_STRINGS
from sdssm.limits import LONGEST_STRING, MOST_CHECKED
from sdssm.printable import make_printable

if TYPE_CHECKING:
    from sdssm.cli.options import Commands

#: Exit code of --strict.
NOT_CERTIFIED = 1


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "certify",
        summary="prove a length up to which every string is classified correctly",
        description="Compute a length up to which every valid string of the task is provably classified correctly: "
        "once in exact arithmetic on the model's float32 parameters, and once with the rounding of float32. The result "
        "of a run that has ended, for its own task, is also written into its folder as certificate.json, where model "
        "cards find it. A stored certificate that proves a greater length is kept unless --overwrite is given.",
        examples=[
            "sdssm certify runs/a5/seed-0",
            "sdssm certify runs/a5/seed-0 --strict --max-seconds 60",
            "sdssm certify models/a5 --task a5",
        ],
    )
    add_source_options(parser)
    add = parser.add_argument
    add(
        "--strings",
        metavar="N",
        type=whole_number_between(0, MOST_CHECKED),
        default=SHORT_STRINGS,
        help=f"short strings to check one by one (default: {SHORT_STRINGS:,})",
    )
    add(
        "--search",
        metavar="N",
        type=whole_number_between(0, LONGEST_STRING),
        default=LONGEST_SEARCH,
        help=f"search for a misclassified string up to this length (default: {LONGEST_SEARCH:,})",
    )
    add(
        "--strict",
        action="store_true",
        help="exit with code 1 if a misclassified string was found, or if nothing is proved",
    )
    add_store_option(parser, "a stored certificate even if it proves a greater length")
    add_limit_options(parser, "print what is proved so far")
    parser.set_defaults(run=_certify)


def _certify(options: argparse.Namespace) -> None:
    from sdssm.exact import certify

    import_models([options.run_folder], options)
    store = ResultStore(options.run_folder)
    certificate = certify(
        store.source,
        options.task,
        strings=options.strings,
        search=options.search,
        max_seconds=options.max_seconds,
        progress=not options.quiet,
    )
    note = store.keep(certificate, overwrite=options.overwrite)
    if options.json:
        noted = {} if note is None else {"note": note}
        print_json({"task": certificate.task, "run": str(options.run_folder), **certificate.to_json(), **noted})
    else:
        print(make_printable(str(options.run_folder)))
        print_result(certificate.to_table(where="--json prints all of it"))
        print_note(note)
    if options.strict and (certificate.counterexample is not None or certificate.proves_nothing):
        raise SystemExit(NOT_CERTIFIED)
