"""`sdssm certify`: prove up to which length every valid string is classified correctly."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.exact_options import TASK_HELP, add_limit_options, print_result
from sdssm.cli.model_options import add_trust_options, import_models
from sdssm.cli.options import RUN_HELP, declare_command, parse_whole_number
from sdssm.cli.output import make_printable, print_json, print_text
from sdssm.exact.defaults import LONGEST_SEARCH, SHORT_STRINGS

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.runs import RunFolder

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
    add = parser.add_argument
    add("run_folder", metavar="RUN", type=Path, help=RUN_HELP)
    add("--task", help=TASK_HELP)
    add_trust_options(parser)
    add(
        "--strings",
        metavar="N",
        type=parse_whole_number,
        default=SHORT_STRINGS,
        help=f"short strings to check one by one (default: {SHORT_STRINGS:,})",
    )
    add(
        "--search",
        metavar="N",
        type=parse_whole_number,
        default=LONGEST_SEARCH,
        help=f"search for a misclassified string up to this length (default: {LONGEST_SEARCH:,})",
    )
    add(
        "--strict",
        action="store_true",
        help="exit with code 1 if a misclassified string was found, or if nothing is proved",
    )
    add("--overwrite", action="store_true", help="replace a stored certificate even if it proves a greater length")
    add_limit_options(parser, "print what is proved so far")
    parser.set_defaults(run=_certify)


def _certify(options: argparse.Namespace) -> None:
    from sdssm.exact import certify
    from sdssm.exact.certification.stored import store_certificate

    import_models([options.run_folder], options)
    run = _find_run(options)
    status = None if run is None else run.status  # before the weights are read: training may continue meanwhile
    certificate = certify(
        options.run_folder if run is None else run,
        options.task,
        strings=options.strings,
        search=options.search,
        max_seconds=options.max_seconds,
        progress=not options.quiet,
    )
    note = None
    if run is not None and status is not None and _is_own_task(run, options.task):
        note = store_certificate(run, certificate, status, overwrite=options.overwrite)
    if options.json:
        noted = {} if note is None else {"note": note}
        print_json({"task": certificate.task, "run": str(options.run_folder), **certificate.to_json(), **noted})
    else:
        print(make_printable(str(options.run_folder)))
        print_result(certificate.to_table(where="--json prints all of it"))
        if note is not None:
            print_text(f"Note: {note}")
    if options.strict and (certificate.counterexample is not None or certificate.proves_nothing):
        raise SystemExit(NOT_CERTIFIED)


def _find_run(options: argparse.Namespace) -> RunFolder | None:
    """Return the run of the folder; None if it holds a saved model."""
    from sdssm.models.saved import is_model_folder
    from sdssm.runs.single import folder_path, only_run

    path = folder_path(options.run_folder)
    return None if is_model_folder(path) else only_run(path)


def _is_own_task(run: RunFolder, task: str | None) -> bool:
    """Return whether a task, None if none was named, is the one that the run was trained on."""
    from sdssm.tasks import get_task

    return task is None or get_task(task).digest == run.config.digest
