"""`sdssm compile`: construct a model that emulates an automaton exactly, without training."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdssm.cli.exact_options import OVERWRITE_HELP, add_display_options
from sdssm.cli.options import declare_command, parse_length, parse_seed, parse_strings, whole_number_between
from sdssm.cli.output import print_facts, print_json
from sdssm.errors import format_value
from sdssm.exact.defaults import CHECKED_STRINGS, COLUMN_NORM, ENCODING, LAYERS, MODEL

if TYPE_CHECKING:
    from sdssm.cli.options import Commands


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "compile",
        summary="construct a model that emulates an automaton exactly",
        description="Construct a model from the transition table of an automaton, without training, save it, and "
        "check its predictions on random strings.",
        examples=[
            "sdssm compile a5 --out models/a5",
            "sdssm compile d30 --model complex-diagonal --layers 2 --out models/d30",
        ],
    )
    add = parser.add_argument
    add("name", metavar="TASK", help="task, such as a5, s5:32:0, z3*d5, 'regex:(ab)*' or my.json")
    add("--out", metavar="DIR", type=Path, required=True, help="folder for the model")
    add("--overwrite", action="store_true", help=OVERWRITE_HELP)
    add("--minimise", action="store_true", help="compile the smallest automaton with the same outputs")
    add("--model", default=MODEL, help="sd-ssm, or complex-diagonal for groups (default: %(default)s)")
    add(
        "--layers",
        metavar="N",
        type=whole_number_between(1, 2),
        default=LAYERS,
        help="layers of a complex-diagonal model; d30 needs 2 (default: %(default)s)",
    )
    add(
        "--encoding",
        metavar="NAME",
        default=ENCODING,
        help="encoding of sd-ssm's states: one-hot, orthogonal or independent (default: %(default)s)",
    )
    add(
        "--column-norm",
        metavar="P",
        type=_parse_norm,
        default=COLUMN_NORM,
        help="order of sd-ssm's column norm, a number or none (default: %(default)s)",
    )
    add(
        "--seed",
        metavar="N",
        type=parse_seed,
        default=0,
        help="seed of random encodings and of the strings (default: %(default)s)",
    )
    add(
        "--length",
        metavar="N",
        type=parse_length,
        help="length of the strings (default: 10,000, and shorter with more than 500 states)",
    )
    add(
        "--strings",
        metavar="N",
        type=parse_strings,
        default=CHECKED_STRINGS,
        help="strings to check (default: %(default)s)",
    )
    add_display_options(parser)
    parser.set_defaults(run=_compile)


def _parse_norm(text: str) -> float | None:
    try:
        return None if text.lower() == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{format_value(text)} is neither a number nor none") from None


def _compile(options: argparse.Namespace) -> None:
    import torch

    from sdssm.exact.compilation import check_emulation, default_check_length, phase_error
    from sdssm.exact.compilation import compile as compile_task
    from sdssm.models.saved import check_model_folder_free
    from sdssm.tasks import get_task

    check_model_folder_free(options.out, overwrite=options.overwrite, option="--overwrite")
    task = get_task(options.name)
    generator = torch.Generator().manual_seed(options.seed)
    model = compile_task(
        task,
        encoding=options.encoding,
        column_norm=options.column_norm,
        generator=generator,
        model=options.model,
        layers=options.layers,
        minimise=options.minimise,
        progress=not options.quiet,
    )
    model.save(options.out, overwrite=options.overwrite)
    machine = task.machine.minimise() if options.minimise else task.machine
    drift = check_emulation(
        model,
        replace(task, machine=machine),
        options.length or default_check_length(model, options.strings),
        strings=options.strings,
        generator=generator,
        progress=not options.quiet,
    )
    facts: dict[str, Any] = {
        "task": task.name,
        "folder": str(options.out),
        "model": options.model,
        "layers": options.layers,
        "encoding": options.encoding if options.model == "sd-ssm" else "characters",
        "states": machine.n_states,
        "symbols": task.n_symbols,
        "classes": task.n_classes,
        "state": model.settings.mixer.state,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "strings": drift.strings,
        "length": drift.length,
        "wrong": drift.wrong,
        "first_wrong": drift.first_wrong,
        "drift": drift.drift,
        "phase_error": phase_error(model, machine) if options.model == "complex-diagonal" else None,
    }
    if options.json:
        print_json(facts)
    else:
        print_facts(task.name, _format_facts(facts))


def _format_facts(facts: dict[str, Any]) -> dict[str, str]:
    """Return the facts as lines of text."""
    unit = "characters" if facts["encoding"] == "characters" else "entries"
    layers = "one layer" if facts["layers"] == 1 else f"{facts['layers']} layers"
    total = facts["strings"] * facts["length"]
    strings = f"every prefix of {facts['strings']:,} random strings of length {facts['length']:,}"
    predictions = f"all {total:,} correct ({strings})"
    if facts["wrong"]:
        predictions = f"{facts['wrong']:,} of {total:,} wrong, first at length {facts['first_wrong']:,} ({strings})"
    drift = f"{facts['drift']:.1e} of a state's size after {facts['length']:,} steps" if facts["drift"] else "none"
    lines = {
        "machine": f"{facts['states']:,} states, {facts['symbols']:,} symbols, {facts['classes']:,} classes",
        "model": f"{facts['model']}, {layers}, {facts['state']:,} {unit} per state, encoding {facts['encoding']}",
        "parameters": f"{facts['parameters']:,}",
        "predictions": predictions,
        "drift": drift,
    }
    if facts["phase_error"] is not None:
        lines["phase error"] = f"at most {facts['phase_error']:.1e} radians per step"
    lines["saved in"] = facts["folder"]
    return lines
