"""`sdssm export`: write a model in a format that other programs read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdssm.cli.exact_options import TASK_HELP
from sdssm.cli.model_options import add_trust_options, import_models
from sdssm.cli.options import JSON_HELP, RUN_HELP, declare_command
from sdssm.cli.output import print_facts, print_json
from sdssm.cli.own_inputs import check_own_inputs
from sdssm.exporting.formats import FORMATS, check_format, format_of_path

if TYPE_CHECKING:
    from sdssm.cli.options import Commands
    from sdssm.exporting import ExportedModel


def add_command(commands: Commands) -> None:
    """Declare the command."""
    parser = declare_command(
        commands,
        "export",
        summary="write a model as ONNX, as arrays of numpy or as JSON",
        description="Write the model of a run, or a saved model, in a format that other programs read. An ONNX model "
        "is compared with Python on strings before it is written.",
        examples=[
            "sdssm export runs/a5/seed-0 --format onnx --out a5-onnx",
            "sdssm export runs/a5/seed-0 --format npz --out a5.npz",
            "sdssm export models/a5 --format json --out a5.json --overwrite",
        ],
    )
    add = parser.add_argument
    add("run_folder", metavar="RUN", type=Path, help=RUN_HELP)
    formats = "; ".join(f"{name}: {what}" for name, what in FORMATS.items())
    add("--format", metavar="NAME", help=f"{formats} (default: as the suffix of --out says, else onnx)")
    add("--out", metavar="PATH", type=Path, help="folder (onnx) or file to write (default: export/ in the folder RUN)")
    add("--overwrite", action="store_true", help="replace files that exist")
    add("--task", help=TASK_HELP)
    add_trust_options(parser)
    add("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    format_name = format_of_path(options.out) if options.format is None else check_format(options.format)
    check_own_inputs({"--out": options.out}, folder=options.run_folder, task=options.task)
    import_models([options.run_folder], options)

    from sdssm.exporting import export

    exported = export(
        options.run_folder,
        options.out,
        format=format_name,
        task=options.task,
        overwrite=options.overwrite,
        trust=options.trust,
    )
    if options.json:
        print_json(exported.to_json())
    else:
        print_facts(str(options.run_folder), _format_facts(exported))


def _format_facts(exported: ExportedModel) -> dict[str, str]:
    """Return what was written as lines of text."""
    facts = {"model": exported.name, "task": exported.task or "unknown"}
    if exported.format == "onnx":
        check = exported.check
        facts["checked"] = (
            "no, because onnxruntime is not installed; install sdssm[onnx]"
            if check is None
            else f"{check.strings} random strings up to length {check.longest:,} in onnxruntime: logits differ by at "
            f"most {check.difference:.1e} from Python"
        )
    folder, names = exported.files[0].parent, [path.name for path in exported.files]
    facts["written"] = str(folder / names[0]) if len(names) == 1 else f"{', '.join(names)} in {folder}"
    return facts
