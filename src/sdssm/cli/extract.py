"""`sdssm extract`: the automaton that a trained model implements."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.evaluate import several, whole
from sdssm.cli.output import print_facts, print_json, print_table, printable
from sdssm.report.rendering import format_percent as percent

if TYPE_CHECKING:
    from sdssm.exact import Extraction

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "extract",
        help="the automaton that a model implements",
        description="Read the automaton out of a trained model, and compare the two on random strings.",
        epilog="sdssm extract runs/a5/seed-0 --svg a5.svg",
        allow_abbrev=False,
    )
    add_reading(one)
    add = one.add_argument
    add("--lengths", metavar="N,N,...", type=several, help="where to compare machine and model (default 5 to 500)")
    add("--strings", metavar="N", type=whole, default=512, help="strings for each length (default 512)")
    add("--svg", metavar="FILE", type=Path, help="draw the machine there")
    add("--out", metavar="FILE", type=Path, help="write the machine there, as .json or .dot")
    add("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_extract)


def add_reading(one: argparse.ArgumentParser) -> None:
    """Which model, and how its machine is looked for."""
    add = one.add_argument
    add("run_folder", metavar="RUN", type=Path, help="the folder of a run or of a saved model")
    add("--method", choices=("states", "lstar"), default="states", help="by its states (default), or by L* (aalpy)")
    add("--max-states", metavar="N", type=whole, default=1024, help="the most states to tell apart (default 1024)")
    add("--seed", metavar="N", type=whole, default=0, help="seed of the strings (default 0)")


def _extract(options: argparse.Namespace) -> None:
    from sdssm.automata import draw, write_machine
    from sdssm.automata.formats import write_text
    from sdssm.exact.extraction import LENGTHS, extract

    found = extract(
        options.run_folder,
        method=options.method,
        lengths=options.lengths or LENGTHS,
        strings=options.strings,
        max_states=options.max_states,
        seed=options.seed,
    )
    if options.svg is not None:
        write_text(options.svg, draw(found.machine, title=str(options.run_folder)))
    if options.out is not None:
        write_machine(found.machine, options.out)
    if options.json:
        print_json(found.to_json())
        return
    show(str(options.run_folder), found)
    for what, where in (("State diagram", options.svg), ("Machine", options.out)):
        if where is not None:
            print(f"\n{what}: {printable(str(where))}")


def show(title: str, found: Extraction) -> None:
    """The machine in a few facts, and where it agrees with the model."""
    machine = found.machine
    facts = {
        "machine": f"{machine.n_states:,} states, {machine.n_symbols:,} symbols, {len(set(machine.outputs)):,} outputs",
        "strings": "every string" if found.valid is None else "the valid ones alone",
        "explored": f"{found.explored:,} states of the model, {found.rounds} rounds of counterexamples",
        "margin": f"{found.margin:.4g} between the best and the second logit",
    }
    if found.expected is not None:
        word = found.difference
        facts["task"] = (
            "the same as the task's machine on every valid string, proved by their product"
            if word is None
            else f"differs from the task's machine on {machine.decode(word)!r}"
        )
    if found.note is not None:
        facts["note"] = found.note
    print_facts(title, facts)
    print("\nMachine and model agree, in % of random strings\n")
    rows = [
        [f"{one.length:,}", f"{one.strings:,}", percent(100 * one.share), percent(100 * one.throughout / one.strings)]
        for one in found.fidelity
    ]
    headers = ["length", "strings", "at the end", "at every symbol"]
    print_table(headers, rows, right=headers)
