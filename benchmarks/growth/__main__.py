"""Measure how the scans grow and draw it: `python -m benchmarks.growth [--device cuda] [--draw] [--again]`.

One forward and backward pass of the SD-SSM recurrence in float32, against length, state size, batch and replicas.
Results are kept in benchmarks/growth/cpu.json (or cuda.json), and points that are there are not measured again. The
figure is drawn from these files alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from benchmarks.growth.drawing import draw
from benchmarks.growth.measuring import Limits, describe, load, measure_all, measure_here, measure_in_process
from benchmarks.growth.methods import METHODS, Point

FOLDER = Path(__file__).parent
#: The files in the order of the figure.
DEVICES = ("cpu", "cuda")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=DEVICES, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--draw", action="store_true", help="only draw the figure from the stored files")
    parser.add_argument("--again", action="store_true", help="measure stored points too")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="a curve ends where a pass takes longer")
    parser.add_argument("--gib", type=float, default=Limits.gib, help="a curve ends where a pass takes more memory")
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="S", help="start no point after this")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the files")
    parser.add_argument("--point", help=argparse.SUPPRESS)  # measured by this process, as JSON
    options = parser.parse_args(argv)
    if options.point:
        request = json.loads(options.point)
        torch.backends.cuda.matmul.allow_tf32 = False
        print(json.dumps(measure_here(Point(**request["point"]), request["device"], Limits(**request["limits"]))))
        return 0
    limits, is_complete = Limits(options.seconds, options.gib), True
    if not options.draw:
        torch.backends.cuda.matmul.allow_tf32 = False
        # torch counts the memory of a GPU exactly; on a CPU the peaks of several points would mix in one process.
        measure = measure_in_process if options.device == "cpu" else measure_here
        is_complete = measure_all(
            options.folder / f"{options.device}.json",
            describe(options.device, limits),
            lambda point: measure(point, options.device, limits),
            methods=options.methods,
            again=options.again,
            stop_after=options.stop_after,
        )
    files = [path for device in DEVICES if (path := options.folder / f"{device}.json").exists()]
    if not files:
        parser.error(f"nothing is stored in {options.folder}; measure without --draw first")
    draw([load(path) for path in files], options.folder / "growth.svg", options.folder / "growth.png")
    if not is_complete:
        print("points are missing; run the command again to continue", file=sys.stderr)
    return 0 if is_complete else 3


if __name__ == "__main__":
    sys.exit(main())
