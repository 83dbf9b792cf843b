"""`sdssm certify`: a length up to which every valid string is proved to be told right."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.evaluate import whole
from sdssm.cli.output import print_facts, print_json
from sdssm.files import format_path

if TYPE_CHECKING:
    from sdssm.automata import Machine
    from sdssm.exact import Certificate

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

#: Symbols of a string that a reader will look at.
MOST_SHOWN = 80


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "certify",
        help="a length up to which every string is proved right",
        description="A length up to which the model of a run is proved to tell every valid string of its task right: "
        "in exact arithmetic on its float32 matrices, and with float32 rounding.",
        epilog="sdssm certify runs/a5/seed-0",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("run_folder", metavar="RUN", type=Path, help="the folder of a run, or of a model")
    add("--task", help="the task of a model that has no run, such as one that was compiled")
    add("--strings", metavar="N", type=whole, default=1 << 17, help="strings to look at one by one (default 131,072)")
    add("--search", metavar="N", type=whole, default=1_000, help="look for a wrong string up to this length (1,000)")
    add("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_certify)


def _certify(options: argparse.Namespace) -> None:
    from sdssm.exact import ExactError, certify
    from sdssm.exact.sources import load_source as subject
    from sdssm.tasks import get_task as named_task

    model, run = subject(options.run_folder)
    if run is None and options.task is None:
        raise ExactError(f"{format_path(options.run_folder)} holds a model without its task; name it, as in --task a5")
    if run is not None and options.task is not None:
        raise ExactError("a run knows its own task; leave --task out")
    task = named_task(options.task) if run is None else run.config.known_task()
    found = certify(model, task.machine, task.valid, strings=options.strings, search=options.search)
    if options.json:
        print_json({"task": task.name, "run": str(options.run_folder), **found.to_json()})
        return
    print_facts(f"{task.name}: {options.run_folder}", _facts(found, task.machine, options.search))


def _facts(found: Certificate, machine: Machine, search: int) -> dict[str, str]:
    facts = {
        "certified horizon": _length(found.horizon),
        "with float32 rounding": _length(found.float_horizon),
        "why": found.reason,
    }
    if found.exact:
        facts["model"] = "exact: its states are whole numbers"
    else:
        facts["every string looked at"] = f"to length {found.exhaustive:,}"
        facts["subspace"] = f"{found.dimension} entries for {found.states} states of the machine"
        if found.norms is not None and found.residual is not None and found.margin is not None:
            facts["residual of a symbol"] = f"{found.residual:.2g}, of a margin of {found.margin:.2g}"
            facts["norm of a symbol"] = f"{found.norms[0]:.5f}, of words of {found.word}: {found.norms[1]:.5f}"
    if found.counterexample is not None:
        facts["told wrong"] = f"a string of length {len(found.counterexample):,}: {_spelt(found, machine)}"
    elif found.horizon is not None and search:
        facts["told wrong"] = f"none found among some hundreds of strings up to length {search:,}"
    return facts


def _length(horizon: int | None) -> str:
    return "every length" if horizon is None else f"{horizon:,}"


def _spelt(found: Certificate, machine: Machine) -> str:
    assert found.counterexample is not None
    text = machine.decode(found.counterexample)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... (--json shows all of it)"
