"""Forecast the failing length of many short trainings, and compare with the measured one.

    python -m benchmarks.forecast --train --out FOLDER     # trains and measures; writes forecast.json and weights
    python -m benchmarks.forecast --weights FOLDER --out FOLDER    # forecasts again from stored weights, on a CPU
    python -m benchmarks.forecast --score [FOLDER/forecast.json ...]    # trains nothing; writes results/forecast/

The campaign trains the models of the catalogue on tasks for calibration, from which the constants of the forecast were
chosen, and on other tasks with other seeds, on which it is scored once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.forecast.campaign import measure_archives, run_campaign
from benchmarks.forecast.scoring import RUNS_FILE, write_results

#: Where the results are.
RESULTS = Path(__file__).parents[2] / "results" / "forecast"


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.forecast", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", action="store_true", help="train and measure")
    parser.add_argument("--weights", type=Path, nargs="+", help="folders with forecast.json and archives of weights")
    parser.add_argument("--score", type=Path, nargs="*", help="files with runs; by default the one in the results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--out", type=Path, default=Path("forecast-data"), help="the folder of forecast.json")
    parser.add_argument("--max-seconds", type=float, default=530.0, help="stop then, and write what there is")
    parser.add_argument("--device", default=None, help="by default a GPU if there is one")
    parser.add_argument("--models", nargs="+", help="by default all of the catalogue")
    parser.add_argument("--tasks", nargs="+", help="by default all")
    parser.add_argument("--steps", type=int, help="by default those of each model")
    parser.add_argument("--longest", type=int, default=50_000, help="the longest test strings")
    parser.add_argument("--workers", type=int, default=12, help="processes that measure")
    arguments = parser.parse_args()
    if arguments.train:
        from sdssm.devices import device_name, resolve_device

        device = resolve_device(arguments.device or "auto")
        arguments.device, arguments.device_name = str(device), device_name(device)
        run_campaign(arguments)
    elif arguments.weights:
        measure_archives(arguments.weights, arguments.out)
    elif arguments.score is not None:
        print(write_results(arguments.score or [arguments.results / RUNS_FILE], arguments.results))
    else:
        parser.error("give --train, --weights or --score")


if __name__ == "__main__":
    main()
