"""`sdssm snap`: an exact model in place of a trained one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.extract import add_reading, show
from sdssm.cli.output import print_json, printable

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "snap",
        help="an exact model of what a model learned",
        description="Read the automaton out of a trained model and write the exact model of it, with the evidence.",
        epilog="sdssm snap runs/a5/seed-0 --out models/a5-exact",
        allow_abbrev=False,
    )
    add_reading(one)
    one.add_argument("--out", metavar="DIR", type=Path, required=True, help="where the exact model goes")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_snap)


def _snap(options: argparse.Namespace) -> None:
    from sdssm.exact import snap

    snapped = snap(options.run_folder, method=options.method, max_states=options.max_states, seed=options.seed)
    snapped.save(options.out)
    if options.json:
        print_json({**snapped.to_json(), "folder": str(options.out)})
        return
    show(str(options.run_folder), snapped.extraction)
    proved = snapped.certificate.horizon
    length = "every length" if proved is None else f"strings up to length {proved:,}"
    print(f"\nExact model: {printable(str(options.out))}, proved to emulate the machine for {length}")
