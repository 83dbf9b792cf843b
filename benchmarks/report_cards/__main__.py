"""Report cards of all models of the catalogue on three tasks: train, measure, and write the table.

    python -m benchmarks.report_cards --train --out FOLDER        # trains all models side by side; on a GPU, 280 s
    python -m benchmarks.report_cards --complete FOLDER           # measures the sections that are missing, on a CPU
    python -m benchmarks.report_cards --table FOLDER              # writes the table alone

The first step needs torch, triton, numpy and safetensors only. It writes FOLDER/cards.json, FOLDER/README.md and the
run folders, with weights, as one archive for each task. The second step reads these and writes results/report-cards.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.report_cards.campaign import run_campaign
from benchmarks.report_cards.completion import complete
from benchmarks.report_cards.planning import TASKS
from benchmarks.report_cards.table import write_table
from sdssm.models.catalogue import MODELS


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.report_cards", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--train", action="store_true", help="train all models and measure their cards")
    add("--complete", metavar="FOLDER", type=Path, help="measure what is missing in the cards of this folder")
    add("--table", metavar="FOLDER", type=Path, help="write the table of the cards of this folder")
    add("--out", type=Path, default=Path("card-data"), help="the folder of --train")
    add("--results", type=Path, default=Path("results/report-cards"), help="the folder of --complete")
    add("--max-seconds", type=float, default=280.0, help="stop then, and write what there is")
    add("--card-seconds", type=float, default=40.0, help="seconds for each card of --complete")
    add("--sections", nargs="+", help="with --complete: only these sections")
    add("--again", action="store_true", help="with --complete: measure sections that were measured, too")
    add("--device", default="auto", help="by default a GPU if there is one")
    add("--models", nargs="+", help="by default all of the catalogue")
    add("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), help="by default all")
    add("--steps", type=int, help="of every model; by default as many as fit the time")
    add("--workers", type=int, default=14, help="processes that measure")
    arguments = parser.parse_args()
    from sdssm.devices import device_name, resolve_device

    device = resolve_device(arguments.device)
    arguments.device, arguments.device_name = str(device), device_name(device)
    if arguments.train:
        arguments.models = arguments.models or list(MODELS)
        run_campaign(arguments)
    elif arguments.complete is not None:
        complete(arguments)
    elif arguments.table is not None:
        write_table(arguments.table)
    else:
        parser.error("give --train, --complete FOLDER or --table FOLDER")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # worker processes that were terminated must not delay the end
