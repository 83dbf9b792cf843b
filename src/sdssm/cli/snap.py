"""`sdssm snap`: replace a trained model by an exact model of the same automaton."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.extract import add_extraction_options, show_extraction
from sdssm.cli.options import JSON_HELP, declare_command
from sdssm.cli.output import make_printable, print_json

if TYPE_CHECKING:
    from sdssm.cli.options import Commands


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "snap",
        summary="replace a trained model by an exact one",
        description="Extract the automaton from a trained model, compile it into an exact model, and save that model "
        "with the evidence that both agree.",
        examples=["sdssm snap runs/a5/seed-0 --out models/a5-exact"],
    )
    add_extraction_options(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the exact model")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_snap)


def _snap(options: argparse.Namespace) -> None:
    from sdssm.exact import snap

    snapped = snap(options.run_folder, method=options.method, max_states=options.max_states, seed=options.seed)
    snapped.save(options.out)
    if options.json:
        print_json({**snapped.to_json(), "folder": str(options.out)})
        return
    show_extraction(str(options.run_folder), snapped.extraction)
    certified = snapped.certificate.horizon
    lengths = "for every length" if certified is None else f"up to length {certified:,}"
    print(f"\nExact model: {make_printable(str(options.out))}, proved to emulate the extracted machine {lengths}")
    if snapped.extraction.expected is not None and snapped.extraction.difference is not None:
        print("The extracted machine is not that of the task: see the string above on which they differ.")
