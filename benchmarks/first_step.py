"""Time the first start: `python -m benchmarks.first_step [--source DIR ...] [--rounds N]`, half a minute on a CPU.

Starts `sdssm train a5 --steps 1 --device cpu` in new processes, with an empty and with a filled cache of numba, and
prints medians of the seconds from the start of the process to the end of its first step and to its own end. The first
step has ended when the run folder has its event, so that the command runs as it is. Python files have their byte code:
each case runs once before it is timed. Several folders `src` are measured in turn, to compare two versions. Times are
those of a clock on the wall, so the machine must be idle.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Start(NamedTuple):
    """Seconds from the start of a process to the end of its first training step, and to its own end."""

    first_step: float
    end: float


def run_once(source: Path, cache: str) -> Start:
    """Train one step in a new process, with the package in `source` and numba's cache in the folder `cache`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": cache}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sdssm", "train", "a5", "--steps", "1", "--quiet", "--device", "cpu"]
        start = time.time()
        subprocess.run([*command, "--out", f"{folder}/a5"], check=True, capture_output=True, env=environment)
        end = time.time()
        events = Path(folder, "a5", "seed-0", "events.jsonl").stat()
    return Start(events.st_mtime - start, end - start)


def measure(sources: Sequence[Path], rounds: int) -> dict[tuple[Path, str], list[Start]]:
    """Return the starts of each source with each cache; all take turns."""
    starts: dict[tuple[Path, str], list[Start]] = {}
    with tempfile.TemporaryDirectory() as parent:
        filled = {source: f"{parent}/{number}" for number, source in enumerate(sources)}
        for source in sources:  # writes byte code and fills the cache
            run_once(source, filled[source])
        for number in range(rounds):
            for source in sources:
                starts.setdefault((source, "filled"), []).append(run_once(source, filled[source]))
                empty = tempfile.mkdtemp(prefix=f"empty-{number}-", dir=parent)
                starts.setdefault((source, "empty"), []).append(run_once(source, empty))
    return starts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", nargs="+", type=Path, default=[ROOT / "src"], help="folders that hold sdssm")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case is measured")
    options = parser.parse_args()
    starts = measure([source.resolve() for source in options.source], options.rounds)
    print(f"{'numba cache':14s}{'first step, s':>16s}{'end, s':>10s}   all first steps, s")
    for (source, cache), times in starts.items():
        first, end = (statistics.median(values) for values in zip(*times, strict=True))
        every = " ".join(f"{start.first_step:.2f}" for start in times)
        print(f"{cache:14s}{first:16.2f}{end:10.2f}   {every}   {source}")


if __name__ == "__main__":
    main()
