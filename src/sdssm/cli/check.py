"""`sdssm check`: the report card of a model."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from sdssm.cli.exact_options import parse_seconds
from sdssm.cli.model_options import add_trust_options, import_models
from sdssm.cli.options import (
    DEVICE_HELP,
    collect_settings,
    declare_command,
    parse_device,
    parse_length,
    parse_seed,
    parse_strings,
    parse_value,
)
from sdssm.cli.output import print_facts, print_json, print_text
from sdssm.cli.own_inputs import check_own_inputs
from sdssm.errors import OutputError, SettingsError
from sdssm.files import check_output_folder, describe_file_error, format_path, write_atomic
from sdssm.means import mean_of_known
from sdssm.printable import make_lines_printable, make_printable

if TYPE_CHECKING:
    from sdssm.checking import ReportCard
    from sdssm.cli.options import Commands

#: The exit code of --strict for a model that breaks a law or is not accurate enough.
NOT_GOOD_ENOUGH = 1
#: The files of --out.
CARD_FILES = {"json": "card.json", "markdown": "card.md", "plot": "card.png"}
#: The name of the run folder's parent below --out.
RUNS = "runs"
#: Standard output as the file of --json.
STANDARD_OUTPUT = "-"
#: The lengths that a plot in the terminal needs at least.
LEAST_POINTS = 8


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "check",
        summary="report card of a model, also of your own",
        description="Measure the report card of a model: accuracy by length beside chance and the best constant "
        "answer, the shortest string that is misclassified, the automaton that the model implements, a forecast of the "
        "length at which it fails, the laws that every model should obey, and what it costs. A section that fails says "
        "why, and the others are measured. The exit code is 0 for a bad model too, unless --strict is given.",
        examples=[
            "sdssm check lstm --task a5 --train --steps 2000",
            "sdssm check runs/a5/seed-0 --out cards/a5",
            "sdssm check my_models.py:MyModel --task parity --train --plot card.png",
            "sdssm check runs/mine/seed-0 --model my_models.py:MyModel",
        ],
    )
    add = parser.add_argument
    add(
        "source",
        metavar="MODEL",
        help="model of sdssm models, import path such as package.module:Name or file.py:Name, or the folder of a run "
        "or of a saved model",
    )
    add("--task", metavar="TASK", help="task to check it on, such as a5 or my.json (default: that of the folder)")
    add("--train", action="store_true", help="train the model first; else it is checked as it is, with initial weights")
    add("--steps", metavar="N", type=parse_value, default=argparse.SUPPRESS, help="number of training steps of --train")
    add("--preset", help="named settings of the model (default: chosen for model and task)")
    add(
        "--set",
        metavar="NAME=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="settings of model and training, such as state=32; sdssm settings MODEL lists all with their defaults",
    )
    add(
        "--seed",
        metavar="N",
        type=parse_seed,
        default=0,
        help="seed of training, weights and searches (default: 0)",
    )
    add("--device", default="auto", type=parse_device, help=DEVICE_HELP)
    add(
        "--max-length",
        metavar="N",
        type=parse_length,
        help="longest strings (default: 50,000, or 2,000 for a model that cannot read in pieces)",
    )
    add("--strings", metavar="N", type=parse_strings, help="strings per length (default: 512)")
    add(
        "--sections",
        metavar="NAME",
        nargs="+",
        help="measure only these: accuracy, misclassified, automaton, forecast, laws, costs",
    )
    add(
        "--max-seconds",
        metavar="N",
        type=parse_seconds,
        help="time for all sections together, without training (default: 100)",
    )
    add_trust_options(parser)
    add(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STANDARD_OUTPUT,
        help="write the card as JSON; without FILE, or with -, print it instead of tables",
    )
    add("--markdown", metavar="FILE", type=Path, help="write the card as a page of Markdown")
    add("--plot", metavar="FILE", type=Path, help="draw the card into a .png, .svg or .pdf file")
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="write card.json, card.md and card.png into this folder, and with --train the run",
    )
    add("--overwrite", action="store_true", help="replace files that exist, and the run in the folder of --out")
    add(
        "--strict",
        action="store_true",
        help="exit with code 1 if a law is broken or the accuracy is below 99 %% at a training length, or either of "
        "these sections was asked for and not measured",
    )
    add("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> None:
    settings = collect_settings(options)
    files = _find_files(options)
    _check_before_torch(options)
    _import_model(options)
    from sdssm.checking import check
    from sdssm.checking.accuracy_measurement import STRINGS
    from sdssm.checking.checker import MAX_SECONDS
    from sdssm.training import progress_for

    prints_json = options.json == STANDARD_OUTPUT
    steps = settings.pop("steps", None)
    card = check(
        options.source,
        options.task,
        train=options.train,
        steps=steps,
        preset=options.preset,
        settings=settings or None,
        out=options.out / RUNS if options.out is not None and options.train else None,
        overwrite=options.overwrite,
        seed=options.seed,
        device=options.device,
        max_length=options.max_length,
        strings=STRINGS if options.strings is None else options.strings,
        sections=options.sections,
        max_seconds=MAX_SECONDS if options.max_seconds is None else options.max_seconds,
        trust=options.trust,
        progress=not options.quiet,
        # What standard output holds must be JSON and nothing else.
        training_progress=progress_for(options.quiet or prints_json, keep=False),
    )
    _write_files(card, files)
    if prints_json:
        print_json(card.to_json())
    else:
        _show(card)
        for path in files.values():
            print_text(f"Written: {path}")
    if options.strict and not card.passes:
        print(make_printable(f"not good enough: {'; '.join(card.shortcomings)}"), file=sys.stderr)
        raise SystemExit(NOT_GOOD_ENOUGH)


def _find_files(options: argparse.Namespace) -> dict[str, Path]:
    """Return the files to write by their kind; raise an error for one that cannot be written, before any work."""
    files: dict[str, Path] = {}
    if options.out is not None:
        if str(options.out) in ("", "."):
            raise SettingsError("--out is the current folder; name a folder for the card, as in --out cards/a5")
        if options.out.exists() and not options.out.is_dir():
            raise OutputError(f"--out {format_path(options.out)} is a file; name a folder")
        files = {kind: options.out / name for kind, name in CARD_FILES.items()}
        taken = next((path for path in files.values() if path.exists()), None)
        if taken is not None and not options.overwrite:
            raise OutputError(f"{format_path(taken)} exists; choose another folder, or replace it with --overwrite")
    given = {"markdown": options.markdown, "plot": options.plot}
    given["json"] = None if options.json in (None, STANDARD_OUTPUT) else Path(options.json)
    for kind, path in given.items():
        if path is not None:
            check_output_folder(path)
            if path.is_dir():
                raise OutputError(f"cannot write {format_path(path)}: it is a folder; name a file in it")
            if path.exists() and not options.overwrite:
                raise OutputError(f"{format_path(path)} exists; choose another name, or replace it with --overwrite")
            files[kind] = path
    if options.plot is not None or options.out is not None:
        from sdssm.report.card_plot import check_card_plot

        check_card_plot(files["plot"])
    outputs = {"--out" if path.parent == options.out else f"--{kind}": path for kind, path in files.items()}
    check_own_inputs(outputs, folder=Path(options.source), task=options.task)
    return files


def _check_before_torch(options: argparse.Namespace) -> None:
    """Raise an error for an unknown task or section before torch is imported."""
    from sdssm.checking.card_section import check_section_names
    from sdssm.tasks.library import get_task

    check_section_names(options.sections)
    if options.task is not None:
        get_task(options.task)


def _import_model(options: argparse.Namespace) -> None:
    """Import the code of the model in a folder, if --model names it or --trust allows it."""
    from sdssm.models.import_paths import is_import_path
    from sdssm.models.registry import list_models

    if options.source not in list_models() and not is_import_path(options.source):
        import_models([Path(options.source)], options)
    elif options.model is not None:
        raise SettingsError(
            f"--model names the code of a model in a folder, but {options.source} is a model itself; leave --model out"
        )


def _write_files(card: ReportCard, files: dict[str, Path]) -> None:
    for kind, path in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "json":
                write_atomic(path, (json.dumps(card.to_json(), indent=1) + "\n").encode())
            elif kind == "markdown":
                write_atomic(path, card.to_markdown().encode())
            else:
                from sdssm.report.card_plot import save_card_plot

                save_card_plot(card.to_json(), path)
        except (OSError, ValueError) as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(
                f"cannot write {format_path(path)}: {describe_file_error(error)}; choose another path"
            ) from None


def _show(card: ReportCard) -> None:
    """Print the first line, a section after the other, and the curve."""
    from sdssm.report import terminal_plot

    print_text(card.description)
    for section in card.sections:
        print()
        print_facts(section.title, section.lines)
    curve = _make_curve(card)
    if curve is not None and len(curve.lengths) >= LEAST_POINTS:
        print(f"\n{make_lines_printable(terminal_plot(curve, width=get_terminal_size().columns))}")
    print()
    print_text(f"Measured on {card.device} in {card.seconds:.0f} s, without training.")


def _make_curve(card: ReportCard) -> Any:
    """Return the accuracy of a card as a curve; None if it was not measured."""
    from sdssm.report import make_curves

    data = card["accuracy"].data if "accuracy" in card.names else None
    if data is None:
        return None
    run = {
        "task": card.task,
        "model": card.model,
        "train_length": card.train_length,
        "max_length": data["lengths"][-1],
        "seed": card.seed,
        "lengths": data["lengths"],
        "accuracy": data["accuracy"],
        "chance": card.chance,
        "balanced": data.get("balanced"),
        "best_constant_mean": mean_of_known(data["best_constant"]),
    }
    [curve] = make_curves({"runs": [run]})
    return replace(curve, listed=False)  # ticks at round lengths
