"""`sdssm certify`: prove up to which length every valid string is classified correctly."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.options import JSON_HELP, RUN_HELP, declare_command, parse_whole_number
from sdssm.cli.output import print_facts, print_json
from sdssm.files import format_path

if TYPE_CHECKING:
    from sdssm.automata import Machine
    from sdssm.cli.options import Commands
    from sdssm.exact import Certificate

#: Symbols of a counterexample that are printed.
MOST_SYMBOLS = 80


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "certify",
        summary="prove a length up to which every string is classified correctly",
        description="Compute a length up to which every valid string of the task is provably classified correctly: "
        "once in exact arithmetic on the model's float32 parameters, and once with the rounding of float32.",
        examples=["sdssm certify runs/a5/seed-0", "sdssm certify models/a5-exact --task a5"],
    )
    add = parser.add_argument
    add("run_folder", metavar="RUN", type=Path, help=RUN_HELP)
    add("--task", help="task of a saved model, such as a compiled one; not needed for a run")
    add(
        "--strings",
        metavar="N",
        type=parse_whole_number,
        default=1 << 17,
        help="short strings to check one by one (default: 131,072)",
    )
    add(
        "--search",
        metavar="N",
        type=parse_whole_number,
        default=1_000,
        help="search for a misclassified string up to this length (default: 1,000)",
    )
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_certify)


def _certify(options: argparse.Namespace) -> None:
    from sdssm.exact import ExactError, certify
    from sdssm.exact.sources import load_source
    from sdssm.tasks import get_task

    model, run = load_source(options.run_folder)
    if run is None and options.task is None:
        raise ExactError(f"{format_path(options.run_folder)} holds a model without its task; name it, as in --task a5")
    if run is not None and options.task is not None:
        raise ExactError("a run knows its task; leave out --task")
    task = get_task(options.task) if run is None else run.config.load_task()
    certificate = certify(model, task.machine, task.valid, strings=options.strings, search=options.search)
    if options.json:
        print_json({"task": task.name, "run": str(options.run_folder), **certificate.to_json()})
        return
    print_facts(f"{task.name}: {options.run_folder}", _facts(certificate, task.machine, options.search))


def _facts(certificate: Certificate, machine: Machine, search: int) -> dict[str, str]:
    facts = {
        "certified length": _format_length(certificate.horizon),
        "with float32 rounding": _format_length(certificate.float_horizon),
        "reason": certificate.reason,
    }
    if certificate.exact:
        facts["model"] = "exact: its states are whole numbers"
    else:
        facts["checked one by one"] = f"all strings up to length {certificate.exhaustive:,}"
        facts["subspace"] = f"{certificate.dimension} dimensions for {certificate.states} states of the machine"
        if certificate.norms is not None and certificate.residual is not None and certificate.margin is not None:
            symbol_norm, word_norm = certificate.norms
            facts["residual"] = f"{certificate.residual:.2g} per symbol, with a margin of {certificate.margin:.2g}"
            facts["norm"] = f"{symbol_norm:.5f} per symbol, {word_norm:.5f} per word of {certificate.word} symbols"
    if certificate.counterexample is not None:
        length = len(certificate.counterexample)
        facts["misclassified"] = f"a string of length {length:,}: {_format_counterexample(certificate, machine)}"
    elif certificate.horizon is not None and search:
        facts["misclassified"] = f"none of the several hundred strings searched, up to length {search:,}"
    return facts


def _format_length(length: int | None) -> str:
    return "every length" if length is None else f"{length:,}"


def _format_counterexample(certificate: Certificate, machine: Machine) -> str:
    assert certificate.counterexample is not None
    text = machine.decode(certificate.counterexample)
    return text if len(text) <= MOST_SYMBOLS else f"{text[:MOST_SYMBOLS]}... (--json prints all of it)"
