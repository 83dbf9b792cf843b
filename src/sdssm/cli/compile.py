"""`sdssm compile`: a model of a machine, its weights written down instead of trained."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdssm.cli.output import print_facts, print_json
from sdssm.errors import format_value

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: Commands) -> None:
    """Declare the command."""
    one = commands.add_parser(
        "compile",
        help="write a model that emulates a machine exactly",
        description="A model whose weights are written down from the machine's table: nothing is trained.",
        allow_abbrev=False,
    )
    add = one.add_argument
    add("name", help="a task, such as a5, s5:32:0, z3*d5, 'regex:(ab)*' or my.json")
    add("--out", metavar="DIR", type=Path, required=True, help="the folder to save the model in")
    add("--model", default="sd-ssm", help="sd-ssm (default), or complex-diagonal for groups")
    add("--layers", type=_count, default=1, help="2: two complex-diagonal layers, as d30 needs (default 1)")
    add("--encoding", default="one-hot", help="of the states: one-hot (default), orthogonal or independent")
    add("--column-norm", metavar="P", type=_norm, default=1.2, help="of sd-ssm: a number or none (default 1.2)")
    add("--seed", type=_seed, default=0, help="of random encodings and of the strings to check on (default 0)")
    add("--length", type=_count, default=10_000, help="of the strings to check on (default 10,000)")
    add("--strings", type=_count, default=4, help="how many strings to check on (default 4)")
    add("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_compile)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 12 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is not a whole number from 1")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is not a whole number from 0")
    return int(text)


def _norm(text: str) -> float | None:
    try:
        return None if text.lower() == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is neither a number nor none") from None


def _compile(options: argparse.Namespace) -> None:
    import torch

    from sdssm.exact.compilation import check_emulation as check
    from sdssm.exact.compilation import compile as compiled
    from sdssm.exact.compilation import phase_error
    from sdssm.tasks import get_task

    one = get_task(options.name)
    generator = torch.Generator().manual_seed(options.seed)
    model = compiled(
        one,
        encoding=options.encoding,
        column_norm=options.column_norm,
        generator=generator,
        model=options.model,
        layers=options.layers,
    )
    model.save(options.out)
    found = check(model, one.machine, options.length, strings=options.strings, generator=generator)
    facts: dict[str, Any] = {
        "task": one.name,
        "folder": str(options.out),
        "model": options.model,
        "layers": options.layers,
        "encoding": options.encoding if options.model == "sd-ssm" else "characters",
        "states": one.machine.n_states,
        "symbols": one.n_symbols,
        "classes": one.n_classes,
        "state": model.settings.mixer.state,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "strings": found.strings,
        "length": found.length,
        "wrong": found.wrong,
        "first_wrong": found.first_wrong,
        "drift": found.drift,
        "phase_error": phase_error(model, one.machine) if options.model == "complex-diagonal" else None,
    }
    if options.json:
        print_json(facts)
    else:
        print_facts(one.name, _spoken(facts))


def _spoken(facts: dict[str, Any]) -> dict[str, str]:
    """The facts as a reader wants them."""
    entries = f"{facts['state']:,} {'entries' if facts['encoding'] != 'characters' else 'characters'}"
    layers = "one layer" if facts["layers"] == 1 else f"{facts['layers']} layers"
    total = facts["strings"] * facts["length"]
    where = f"{facts['strings']:,} random strings of length {facts['length']:,}, every prefix"
    labels = f"all {total:,} right ({where})"
    if facts["wrong"]:
        labels = f"{facts['wrong']:,} of {total:,} wrong, the first at length {facts['first_wrong']:,} ({where})"
    drift = f"{facts['drift']:.1e} of a state's size after {facts['length']:,} steps" if facts["drift"] else "none"
    spoken = {
        "machine": f"{facts['states']:,} states, {facts['symbols']:,} symbols, {facts['classes']:,} classes",
        "model": f"{facts['model']}, {layers}, states of {entries}, encoded as {facts['encoding']}",
        "parameters": f"{facts['parameters']:,}",
        "labels": labels,
        "drift": drift,
    }
    if facts["phase_error"] is not None:
        spoken["phase error"] = f"{facts['phase_error']:.1e} radians a step at most"
    spoken["saved in"] = facts["folder"]
    return spoken
