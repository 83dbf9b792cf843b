"""`sdssm extract`: extract the automaton that a trained model implements."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import JSON_HELP, RUN_HELP, declare_command, parse_whole_number, parse_whole_numbers
from sdssm.cli.output import format_chance_level, make_printable, print_facts, print_json, print_table
from sdssm.report.rendering import format_percent

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.exact import Extraction


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "extract",
        summary="extract the automaton that a model implements",
        description="Extract the automaton that a trained model implements, compare it with the automaton of the "
        "task, and measure on random strings how often automaton and model agree.",
        examples=["sdssm extract runs/a5/seed-0 --svg a5.svg --out a5.json"],
    )
    add_extraction_options(parser)
    add = parser.add_argument
    add(
        "--lengths",
        metavar="N,N,...",
        type=parse_whole_numbers,
        help="lengths at which automaton and model are compared (default: from 5 to 500)",
    )
    add(
        "--strings", metavar="N", type=parse_whole_number, default=512, help="strings per length (default: %(default)s)"
    )
    add("--svg", metavar="FILE", type=Path, help="draw the state diagram into this file")
    add("--out", metavar="FILE", type=Path, help="write the automaton into this .json or .dot file")
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_extract)


def add_extraction_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say from which model, and how, an automaton is extracted."""
    add = parser.add_argument
    add("run_folder", metavar="RUN", type=Path, help=RUN_HELP)
    add(
        "--method",
        choices=("states", "lstar"),
        default="states",
        help="states: merge equivalent states of the model; lstar: query it, with AALpy (default: %(default)s)",
    )
    add(
        "--max-states",
        metavar="N",
        type=parse_whole_number,
        default=1024,
        help="most states of the automaton (default: %(default)s)",
    )
    add("--seed", metavar="N", type=parse_whole_number, default=0, help="seed of the strings (default: %(default)s)")


def _extract(options: argparse.Namespace) -> None:
    from sdssm.automata import draw, write_machine
    from sdssm.automata.formats import write_text
    from sdssm.exact.extraction import LENGTHS, extract

    extraction = extract(
        options.run_folder,
        method=options.method,
        lengths=options.lengths or LENGTHS,
        strings=options.strings,
        max_states=options.max_states,
        seed=options.seed,
    )
    if options.svg is not None:
        write_text(options.svg, draw(extraction.machine, title=str(options.run_folder)))
    if options.out is not None:
        write_machine(extraction.machine, options.out)
    if options.json:
        print_json(extraction.to_json())
        return
    show_extraction(str(options.run_folder), extraction)
    for name, path in (("State diagram", options.svg), ("Machine", options.out)):
        if path is not None:
            print(f"\n{name}: {make_printable(str(path))}")


def show_extraction(title: str, extraction: Extraction) -> None:
    """Print facts about the automaton, and how often it agrees with the model."""
    machine = extraction.machine
    outputs = len(set(machine.outputs))
    facts = {
        "machine": f"{machine.n_states:,} states, {machine.n_symbols:,} symbols, {outputs:,} outputs",
        "strings": "all strings" if extraction.valid is None else "valid strings only",
        "explored": f"{extraction.explored:,} states of the model, {extraction.rounds} rounds of counterexamples",
        "margin": f"{extraction.margin:.4g} between the largest and the second largest logit",
    }
    if extraction.expected is not None:
        word = extraction.difference
        facts["task"] = (
            "the same as the task's machine on every valid string, proved by their product"
            if word is None
            else f"differs from the task's machine on {machine.decode(word)!r}"
        )
    if extraction.note is not None:
        facts["note"] = extraction.note
    print_facts(title, facts)
    chance = format_chance_level(outputs)
    print(f"\nAgreement of machine and model, in % of random strings (chance: {chance} %)\n")
    rows = [
        [
            f"{fidelity.length:,}",
            f"{fidelity.strings:,}",
            format_percent(100 * fidelity.share),
            format_percent(100 * fidelity.throughout / fidelity.strings),
        ]
        for fidelity in extraction.fidelity
    ]
    headers = ["length", "strings", "last symbol", "every symbol"]
    print_table(headers, rows, right=headers)
