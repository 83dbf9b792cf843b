"""Long trainings and large folders: `python -m benchmarks.long_runs train|list|tabulate [--help]`.

train      many tiny steps in many groups: memory and open files of the process must stay flat
list       `sdssm runs` over many run folders
tabulate   `sdssm reproduce` over an experiment whose runs are all there

Times are those of the command in a process of its own, wall and CPU; on a shared machine compare the CPU time.
`list` and `tabulate` train the runs that they need and keep them in `--folder`: a second call measures at once.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import sdssm
from sdssm.training.progress import SilentProgress

#: The shares of a training at which memory is reported.
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
#: Rows and columns of the table; each cell has `--seeds` runs.
MODELS = ("sd-ssm", "lstm", "rnn", "complex-diagonal")
TASKS = ("parity", "even_pairs", "cycle", "d4", "regex:(ab|c)*")


class MemoryRecorder(SilentProgress):
    """A progress display that records how much memory and how many open files the process has."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.rows: list[tuple[float, int, float, int]] = []

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        """Record a row: share of the steps, step, resident memory in MB, open files."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        open_files = sum(1 for _ in Path("/proc/self/fd").iterdir())
        self.rows.append((step / self.steps, step, pages * resource.getpagesize() / 1e6, open_files))

    def at(self, share: float) -> tuple[float, int, float, int]:
        """Return the row that is nearest to a share of the steps."""
        return min(self.rows, key=lambda row: abs(row[0] - share))


def measure_training(groups: int, seeds: int, steps: int, checkpoint_every: int) -> None:
    """Train groups of different shapes; print memory and open files on the way.

    `steps` is the sum over all replicas; the `seeds` replicas of a group train side by side.
    """
    torch.set_num_threads(1)
    each = -(-steps // (groups * seeds))
    variants = {f"state-{4 + k}": {"state": 4 + k} for k in range(groups)}
    settings = {"batch": 4, "train_length": 4, "checkpoint_every": checkpoint_every}
    recorder = MemoryRecorder(each)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        runs = sdssm.train(
            "parity",
            model="rnn",
            seeds=seeds,
            steps=each,
            variants=variants,
            settings=settings,
            device="cpu",
            out=folder,
            progress=recorder,
        )
        if any(run.status != "finished" for run in runs):
            raise SystemExit("a run did not finish; nothing is reported")
    gc.collect()
    seconds = time.process_time() - started
    print(f"{groups} groups of {seeds}, {groups * seeds * each:,} steps in all, {seconds:.0f} s of CPU time")
    print("share  step of a group  resident MB  open files")
    for share in SHARES:
        done, step, megabytes, open_files = recorder.at(share)
        print(f"{done:5.0%}  {step:15,}  {megabytes:11.1f}  {open_files:10}")


def make_experiment(folder: Path, seeds: int) -> list[str]:
    """Train and evaluate the runs of an experiment that are missing; return the command that tabulates them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(
        f'[[rows]]\nmodel = "{model}"\nsettings = {{ state = 4, batch = 4, steps = 2 }}\n' for model in MODELS
    )
    evaluate = "[evaluate]\nmax_length = 20\nstrings = 16\n"
    text = f'name = "many"\nseeds = {seeds}\ntasks = {json.dumps(TASKS)}\n{evaluate}{rows}'
    (folder / "many.toml").write_text(text)
    command = [
        "reproduce",
        str(folder / "many.toml"),
        "--out",
        str(folder / "runs"),
        "--results",
        str(folder / "results"),
    ]
    command += ["--device", "cpu", "--quiet"]
    _run(command)
    return command


def copy_runs(folder: Path, count: int, seeds: int) -> Path:
    """Return a folder with `count` run folders: copies of those of the experiment."""
    make_experiment(folder, seeds)
    sources = sorted(path.parent for path in (folder / "runs").rglob("config.json"))
    copies = folder / "copies"
    for k in range(count):
        target = copies / f"copy-{k // len(sources)}" / sources[k % len(sources)].relative_to(folder / "runs")
        if not target.exists():
            shutil.copytree(sources[k % len(sources)], target)
    return copies


def time_command(arguments: list[str], most: float) -> None:
    """Run a command of `sdssm` and print its wall and CPU seconds beside those that it may take."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    output = _run(arguments)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"sdssm {arguments[0]}: {wall:.1f} s, CPU {cpu:.1f} s, at most {most:g} s; {len(output):,} bytes printed")


def _run(arguments: list[str]) -> bytes:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "sdssm", *arguments], stdout=subprocess.PIPE, check=True, env=environment
    )
    return done.stdout


def main() -> None:
    """Measure one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "list", "tabulate"))
    parser.add_argument("--groups", type=int, default=30, help="of train (default: 30)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of train, over all groups (default: 1,000,000)")
    parser.add_argument("--checkpoint-every", type=int, default=1_000, help="steps of train (default: 1,000)")
    parser.add_argument("--runs", type=int, default=10_000, help="of list (default: 10,000)")
    parser.add_argument("--seeds", type=int, help="of each of the 20 cells of a table (default: 100); of train (1)")
    parser.add_argument(
        "--folder", type=Path, help="where list and tabulate keep their runs (default: a temporary one)"
    )
    options = parser.parse_args()
    if options.what == "train":
        measure_training(options.groups, options.seeds or 1, options.steps, options.checkpoint_every)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if options.what == "list":
            time_command(["runs", str(copy_runs(folder, options.runs, options.seeds or 100))], most=5)
        else:
            time_command(make_experiment(folder, options.seeds or 100), most=30)


if __name__ == "__main__":
    main()
