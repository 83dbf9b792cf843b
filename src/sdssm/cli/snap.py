"""`sdssm snap`: replace a trained model by an exact one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.exact_options import OVERWRITE_HELP, add_limit_options, print_result
from sdssm.cli.extract import add_extraction_options
from sdssm.cli.model_options import import_models
from sdssm.cli.options import declare_command, parse_length
from sdssm.cli.output import print_json
from sdssm.errors import OutputError
from sdssm.files import format_path
from sdssm.printable import make_printable

if TYPE_CHECKING:
    from sdssm.cli.options import Commands


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "snap",
        summary="replace a trained model by an exact one",
        description="Extract the automaton from a trained model, compile it into an exact model, and save that model "
        "with the evidence that both agree. The exact model does what the trained one has learned, even if that is "
        "not the task; a warning then says on which string they first differ. With --every the trained matrices are "
        "kept, and what is saved is the trained model with prototypes.",
        examples=[
            "sdssm snap runs/a5/seed-0 --out models/a5-exact",
            "sdssm snap runs/a5/seed-0 --every 1 --out models/a5-prototypes",
        ],
    )
    add_extraction_options(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder for the exact model, or the model with prototypes",
    )
    parser.add_argument(
        "--every",
        metavar="N",
        type=parse_length,
        help="keep the trained matrices, and move the state to the nearest prototype every N symbols",
    )
    parser.add_argument("--overwrite", action="store_true", help=OVERWRITE_HELP)
    add_limit_options(parser, "save nothing")
    parser.set_defaults(run=_snap)


def _snap(options: argparse.Namespace) -> None:
    from sdssm.exact import snap
    from sdssm.exact.snapping import check_snap_folder_free

    check_snap_folder_free(options.out, overwrite=options.overwrite, option="--overwrite")
    if options.out.exists() and options.run_folder.exists() and options.out.samefile(options.run_folder):
        raise OutputError(
            f"--out {format_path(options.out)} is the folder of the model that is read, and no command overwrites what "
            "it reads; choose another folder"
        )
    import_models([options.run_folder], options)
    snapped = snap(
        options.run_folder,
        task=options.task,
        method=options.method,
        max_states=options.max_states,
        seed=options.seed,
        every=options.every,
        max_seconds=options.max_seconds,
        progress=not options.quiet,
    )
    snapped.save(options.out, overwrite=options.overwrite)
    if options.json:
        print_json({**snapped.to_json(), "folder": str(options.out)})
        return
    print_result(snapped.to_table())
    kind = "Exact model" if options.every is None else "Model with prototypes"
    print(f"\n{kind}: {make_printable(str(options.out))}")
