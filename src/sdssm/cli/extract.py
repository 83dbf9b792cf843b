"""`sdssm extract`: extract the automaton that a trained model implements."""

from __future__ import annotations

import argparse
from pathlib import Path
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
from sdssm.cli.options import declare_command, parse_lengths, parse_seed, parse_strings, whole_number_between
from sdssm.cli.output import check_suffix, print_json
from sdssm.cli.own_inputs import check_own_inputs
from sdssm.exact.defaults import COMPARED_LENGTHS, COMPARED_STRINGS, MAX_STATES, METHOD
from sdssm.limits import MOST_EXTRACTED
from sdssm.printable import make_printable

if TYPE_CHECKING:
    from sdssm.cli.options import Commands

#: Endings of the files that a state diagram is written to.
DRAWINGS = (".svg", ".dot")


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "extract",
        summary="extract the automaton that a model implements",
        description="Extract the automaton that a trained model implements, compare it with the automaton of the "
        "task, and measure on random strings how often automaton and model agree. The result of a run that has ended, "
        "for its own task, is also written into its folder as extraction.json, where reports find it. A stored "
        "extraction that was not stopped by a time limit, or was compared on longer strings, is kept unless "
        "--overwrite is given.",
        examples=["sdssm extract runs/a5/seed-0 --svg a5.svg --out a5.json"],
    )
    add_extraction_options(parser)
    add = parser.add_argument
    add(
        "--lengths",
        metavar="N,N,...",
        type=parse_lengths,
        help=f"lengths at which automaton and model are compared (default: {','.join(map(str, COMPARED_LENGTHS))})",
    )
    add(
        "--strings",
        metavar="N",
        type=parse_strings,
        default=COMPARED_STRINGS,
        help="strings per length (default: %(default)s)",
    )
    add("--svg", metavar="FILE", type=Path, help="draw the state diagram into this .svg file (.dot: for Graphviz)")
    add("--out", metavar="FILE", type=Path, help="write the automaton into this .json, .dot or .att file")
    add_store_option(parser, "a stored extraction even if it was compared on longer strings, or not stopped")
    add_limit_options(parser, "print what is known so far")
    parser.set_defaults(run=_extract)


def add_extraction_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say from which model, and how, an automaton is extracted."""
    add_source_options(parser)
    add = parser.add_argument
    add(
        "--method",
        choices=("states", "lstar"),
        default=METHOD,
        help="states: merge equivalent states of the model; lstar: query it, with AALpy (default: %(default)s)",
    )
    add(
        "--max-states",
        metavar="N",
        type=whole_number_between(1, MOST_EXTRACTED),
        default=MAX_STATES,
        help="most states of the automaton (default: %(default)s)",
    )
    add("--seed", metavar="N", type=parse_seed, default=0, help="seed of the strings (default: %(default)s)")


def _extract(options: argparse.Namespace) -> None:
    from sdssm.automata import draw, to_dot, write_machine
    from sdssm.automata.formats import FORMATS, write_text
    from sdssm.errors import AutomatonError
    from sdssm.exact.extraction import extract

    check_suffix("--svg", options.svg, DRAWINGS, "a state diagram")
    check_suffix("--out", options.out, tuple(FORMATS), "an automaton")
    outputs = {"--out": options.out, "--svg": options.svg}
    check_own_inputs(outputs, folder=options.run_folder, task=options.task)
    import_models([options.run_folder], options)
    store = ResultStore(options.run_folder)
    extraction = extract(
        store.source,
        task=options.task,
        method=options.method,
        lengths=options.lengths or COMPARED_LENGTHS,
        strings=options.strings,
        max_states=options.max_states,
        seed=options.seed,
        max_seconds=options.max_seconds,
        progress=not options.quiet,
    )
    note = store.keep(extraction, overwrite=options.overwrite)
    if options.json:
        print_json({**extraction.to_json(), **({} if note is None else {"storage_note": note})})
    else:
        print(make_printable(str(options.run_folder)))
        print_result(extraction.to_table())
        print(
            f"Explored {extraction.explored:,} states of the model, in {extraction.rounds} rounds of counterexamples."
        )
        print_note(note)
    if options.out is not None:
        write_machine(extraction.machine, options.out)
        _announce("Machine", options.out, options.json)
    if options.svg is None:
        return
    if options.svg.suffix == ".dot":
        write_text(options.svg, to_dot(extraction.machine))
    else:
        try:
            text = draw(extraction.machine, title=str(options.run_folder))
        except AutomatonError as error:  # too large to draw; everything else is printed and written by now
            advice = "write the automaton with --out FILE.json, or --svg FILE.dot for Graphviz"
            raise AutomatonError(f"no state diagram: {str(error).partition(';')[0]}; {advice}") from None
        write_text(options.svg, text)
    _announce("State diagram", options.svg, options.json)


def _announce(name: str, path: Path, is_json: bool) -> None:
    if not is_json:
        print(f"{name}: {make_printable(str(path))}")
