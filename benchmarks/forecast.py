"""Forecast the failing length of many short trainings, and compare with the measured one.

    python -m benchmarks.forecast --train --out FOLDER            # trains and measures; writes FOLDER/forecast.json
    python -m benchmarks.forecast --score FOLDER/forecast.json    # fits nothing; writes results/forecast/

The campaign trains every model of the catalogue on fifteen tasks, with several seeds. Six tasks are for calibration and
nine for scoring, with other seeds. The file holds raw distances at training lengths, and the measured accuracy at long
ones.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as FuturesTimeout
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import sdssm
from sdssm.models.catalogue import default_preset
from sdssm.runs import RunFolder
from sdssm.runs.schema import create_config, resolve_settings, start_stamp, versions
from sdssm.tasks import get_task

#: Tasks of one row have as many symbols and labels, so that they train side by side.
CALIBRATION = (
    ("even_pairs", "regex:((b*ab*ab*a)*b*)*", "regex:(b*ab*ab*ab*a)*b*"),
    ("d4", "z8", "random:8x2:3"),
)
SCORED = (
    ("parity", "tomita5", "tomita6", "regex:(a|b)*a(a|b)(a|b)"),
    ("c2xc4", "random:8x2:0"),
    ("s3", "z6"),
    ("a5",),
)
CALIBRATION_SEEDS, SCORED_SEEDS = (10, 11, 12), (20, 21, 22)
#: The numbers of steps of each model, as many as it needs to learn some of the tasks.
STEPS = {
    "transformer": (3_000,),
    "mamba": (3_000,),
    **dict.fromkeys(("h3", "s4", "s4d"), (12_000,)),
    **dict.fromkeys(("rnn", "lstm", "sd-ssm"), (1_500, 4_000)),
}
USUAL_STEPS = (1_000, 4_000)
#: Models that are trained on the first row of tasks only, since they take long to learn a task.
FIRST_ROW = ("transformer", "mamba", "h3", "s4", "s4d")
#: Models with two seeds: those, and the ones that rarely fail.
TWO_SEEDS = (*FIRST_ROW, "rnn", "lstm", "sd-ssm")
#: The second campaign keeps the weights: model, steps, tasks for calibration, tasks for scoring. The pairs are those of
#: which the first campaign learned the training lengths; two or three seeds each, others than in the first.
COUNTING = ("regex:((b*ab*ab*a)*b*)*", "regex:(b*ab*ab*ab*a)*b*")
THIRD_LAST = "regex:(a|b)*a(a|b)(a|b)"
SECOND: tuple[tuple[str, int, tuple[str, ...], tuple[str, ...]], ...] = (
    ("complex-diagonal", 2_000, (*COUNTING, "z8"), ("parity", "tomita5", "tomita6", THIRD_LAST, "c2xc4", "z6")),
    ("delta-net", 2_500, ("even_pairs",), ("parity", "tomita5", THIRD_LAST)),
    ("delta-product", 3_500, ("even_pairs", *COUNTING, "d4"), ("parity", "tomita5", "tomita6", "c2xc4", "s3")),
    ("hyena", 1_500, ("even_pairs",), (THIRD_LAST,)),
    ("pd-ssm", 3_500, ("even_pairs", *COUNTING, "d4"), ("parity", "tomita5", "tomita6", "s3", "z6")),
    (
        "regular-lrnn",
        1_000,
        ("even_pairs", *COUNTING, "d4", "z8"),
        ("parity", "tomita5", "tomita6", "c2xc4", "s3", "z6"),
    ),
    ("slice", 3_500, ("even_pairs", *COUNTING, "z8"), ("parity", THIRD_LAST, "z6")),
    ("sd-ssm", 1_200, (*COUNTING, "d4", "z8"), ("tomita6", "c2xc4", "s3", "z6", "a5")),
    ("rnn", 1_500, ("even_pairs",), ("parity", THIRD_LAST, "s3")),
    ("lstm", 1_500, ("even_pairs", "random:8x2:3"), ("random:8x2:0", THIRD_LAST)),
    ("mamba", 2_500, ("even_pairs",), (THIRD_LAST,)),
    ("transformer", 2_500, ("even_pairs",), ()),
    ("s4", 4_000, (), (THIRD_LAST,)),
    ("s4d", 4_000, (), (THIRD_LAST,)),
    ("h3", 4_000, (), (THIRD_LAST,)),
)
SECOND_SEEDS = {"calibration": (30, 31), "scored": (40, 41, 42)}
#: Archives of weights: bytes of each, and their number.
ARCHIVE_BYTES, ARCHIVES = 15 * 2**20, 4
#: Models that cannot read in pieces are measured up to this length.
WHOLE_LENGTH = 1_024
#: Seconds that are kept for writing the file.
RESERVE = 10.0


@dataclass(frozen=True)
class PlannedRun:
    """One training of the campaign."""

    model: str
    task: str
    seed: int
    steps: int
    role: str  # "calibration" or "scored"
    folder: Path


def plan(
    root: Path, models: Sequence[str], steps: Sequence[int] | None, seeds: int | None, tasks: Sequence[str] | None
) -> list[PlannedRun]:
    """Return all runs, those that take longest first."""
    runs: list[PlannedRun] = []
    for model in models:
        for count in steps or STEPS.get(model, USUAL_STEPS):
            for role, rows, numbers in (
                ("scored", SCORED, SCORED_SEEDS),
                ("calibration", CALIBRATION, CALIBRATION_SEEDS),
            ):
                used = numbers[: (2 if model in TWO_SEEDS else 3) if seeds is None else seeds]
                names = [name for row in (rows[:1] if model in FIRST_ROW else rows) for name in row]
                for name in names if tasks is None else [name for name in names if name in tasks]:
                    for seed in used:
                        folder = root / f"{len(runs):05d}"
                        runs.append(PlannedRun(model, name, seed, count, role, folder))
    return sorted(runs, key=lambda run: (FIRST_ROW.index(run.model) if run.model in FIRST_ROW else 9, -run.steps))


def plan_second(root: Path, models: Sequence[str]) -> list[PlannedRun]:
    """Return the runs of the second campaign, those that take longest first."""
    runs: list[PlannedRun] = []
    for model, steps, *by_role in SECOND:
        if model in models:
            for role, names in zip(SECOND_SEEDS, by_role, strict=True):
                for name in names:
                    # The weights of a regular-lrnn take 1.2 MB, and there is room for 60.
                    for seed in SECOND_SEEDS[role][: 2 if model == "regular-lrnn" else 3]:
                        runs.append(PlannedRun(model, name, seed, steps, role, root / f"{len(runs):05d}"))
    return sorted(runs, key=lambda run: -run.steps)


def one_task_of_each_shape(runs: Sequence[PlannedRun], model: str) -> list[str]:
    """Return one of the tasks of a model for each number of symbols and labels: these need kernels of their own."""
    by_shape: dict[tuple[int, int], str] = {}
    for name in sorted({run.task for run in runs if run.model == model}):
        task = get_task(name)
        by_shape.setdefault((task.n_symbols, task.n_classes), name)
    return list(by_shape.values())


def train_all(runs: Sequence[PlannedRun], device: str, seconds: float) -> None:
    """Train the runs side by side; after `seconds` those that are under way are stopped and saved."""
    from sdssm.training.trainer import TrainingStopped, train_runs

    stamp, planned = start_stamp(), []
    for run in runs:
        task = get_task(run.task)
        settings = resolve_settings(run.model, default_preset(run.model), task.name, {"steps": run.steps})
        planned.append((run.folder, task, create_config(task, run.seed, settings, default_preset(run.model), stamp)))
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    try:
        train_runs(runs[0].folder.parent, planned, device=device, progress=True)
    except TrainingStopped:
        print("training stopped by the time limit", flush=True)
    finally:
        timer.cancel()


# -- in worker processes -----------------------------------------------------------------------------------------------


def start_worker() -> None:
    """Use one thread, and leave signals to the main process."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def warm_up(model: str, tasks: Sequence[str], device: str) -> float:
    """Compile the kernels of a model, which all processes share through the cache of Triton; return the seconds."""
    from sdssm.checking.forecast_measurement import measure_failing_length
    from sdssm.checking.state_distances import measure_state_distances

    started = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runs = sdssm.train(
            list(tasks), model=model, seeds=2, steps=2, device=device, out=folder, settings={"checkpoint_every": 10}
        )
        for run in runs:
            trained = sdssm.load(run.path).to(device)
            measure_failing_length(trained, get_task(run.config.task), longest=200)
            measure_state_distances(trained, get_task(run.config.task))
    return monotonic() - started


def measure(run: PlannedRun, device: str, longest: int, keep_weights: bool) -> dict[str, Any] | None:
    """Return the distances at training lengths and the measured failing length; None if the run has no weights."""
    import torch

    from sdssm.checking.forecast_measurement import FAILING_ACCURACY, measure_failing_length
    from sdssm.checking.state_distances import measure_state_distances

    started = monotonic()
    try:
        folder = RunFolder.open(run.folder)
        model, task = sdssm.load(run.folder).to(device), get_task(run.task)
    except sdssm.SdssmError:
        return None
    limit = longest if model.is_recurrent else min(longest, WHOLE_LENGTH)
    within = measure_failing_length(model, task, longest=task.train_length)
    row: dict[str, Any] = {
        "model": run.model,
        "task": run.task,
        "seed": run.seed,
        "steps": folder.step,
        "planned_steps": run.steps,
        "status": folder.status,
        "role": run.role,
        "folder": run.folder.name,
        "train_length": task.train_length,
        "trained_accuracy": [round(share, 2) for share in within.accuracy],
    }
    learned = min(within.accuracy[-4:]) >= FAILING_ACCURACY
    row["learned"] = learned
    if learned and keep_weights:
        model.save(run.folder / "saved")
    if learned:
        truth = measure_failing_length(model, task, longest=limit)
        row |= {
            "failing_length": truth.length,
            "longest": truth.longest,
            "lengths": truth.lengths,
            "accuracy": [round(share, 2) for share in truth.accuracy],
        }
        measured = monotonic()
        row["distances"] = measure_state_distances(model, task).to_json()
        row["distance_seconds"] = round(monotonic() - measured, 2)
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    row["seconds"] = round(monotonic() - started, 2)
    return row


# -- the campaign ------------------------------------------------------------------------------------------------------


def run_campaign(arguments: argparse.Namespace) -> Path:
    """Train and measure, and write the file."""
    started = monotonic()
    end = started + arguments.max_seconds
    models = arguments.models or sdssm.list_models()
    root = Path(tempfile.mkdtemp(prefix="forecast-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    if arguments.second:
        runs = plan_second(root, models)
    else:
        runs = plan(root, models, arguments.steps, arguments.seeds, arguments.tasks)
    print(f"{len(runs)} runs of {len(models)} models", flush=True)
    rows: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(arguments.workers, mp_context=context, initializer=start_worker)
    try:
        if arguments.device.startswith("cuda"):
            tasks = {model: one_task_of_each_shape(runs, model) for model in models}
            warm = {pool.submit(warm_up, model, tasks[model], arguments.device): model for model in models}
            for future in finished(warm, min(end, started + 0.3 * arguments.max_seconds)):
                seconds = future.result() if future.exception() is None else math.nan
                print(f"  {monotonic() - started:4.0f} s: {warm[future]} compiled in {seconds:.0f} s", flush=True)
                if future.exception() is not None:
                    print(f"    {future.exception()}", flush=True)
        train_all(runs, arguments.device, max(5.0, 0.68 * arguments.max_seconds - (monotonic() - started)))
        print(f"  {monotonic() - started:4.0f} s: trained", flush=True)
        # In an order that has nothing to do with the results, so that a measurement cut short is not biased. Mamba is
        # first, since it takes two minutes to read strings of length 50,000.
        order = sorted(runs, key=lambda run: (run.model != "mamba", run.seed % 10, run.task, run.steps, run.model))
        jobs = {pool.submit(measure, run, arguments.device, arguments.longest, arguments.second): run for run in order}
        for future in finished(jobs, end - RESERVE):
            if future.exception() is not None:
                print(f"  {jobs[future].model} {jobs[future].task}: {future.exception()}", flush=True)
                continue
            row = future.result()
            rows += [] if row is None else [row]
        print(f"  {monotonic() - started:4.0f} s: {len(rows)} of {len(runs)} runs measured", flush=True)
    finally:
        arguments.out.mkdir(parents=True, exist_ok=True)
        path: Path = arguments.out / "forecast.json"
        description = {
            "command": f"python -m benchmarks.forecast --train{' --second' * arguments.second} "
            f"--max-seconds {arguments.max_seconds:.0f}",
            "device": arguments.device_name,
            "versions": versions(),
            "planned": len(runs),
            "seconds": round(monotonic() - started),
        }
        rows.sort(key=lambda row: (row["model"], row["task"], row["planned_steps"], row["seed"]))
        path.write_text(json.dumps({**description, "runs": rows}, separators=(",", ":")))
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)
        if arguments.second:
            write_archives(root, rows, arguments.out)
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(root, ignore_errors=True)
    failing = [row for row in rows if row.get("failing_length")]
    print(f"{sum(row['learned'] for row in rows)} runs learned the training lengths, {len(failing)} of them fail later")
    return path


def write_archives(root: Path, rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Write the weights of the runs that learned their task, those that fail later first, as far as they fit."""
    learned = sorted((row for row in rows if row["learned"]), key=lambda row: (not row["failing_length"], row["seed"]))
    archives: list[tuple[zipfile.ZipFile, int]] = []
    for row in learned:
        files = sorted((root / row["folder"] / "saved").iterdir())
        size = sum(file.stat().st_size for file in files)
        if not archives or archives[-1][1] + size > ARCHIVE_BYTES:
            if len(archives) == ARCHIVES:
                break
            archives.append((zipfile.ZipFile(out / f"weights-{len(archives)}.zip", "w", zipfile.ZIP_STORED), 0))
        archive, written = archives[-1]
        archives[-1] = archive, written + size
        for file in files:
            archive.write(file, f"{row['folder']}/{file.name}")
    for archive, written in archives:
        archive.close()
        print(f"{archive.filename}: {written / 2**20:.1f} MiB", flush=True)


def finished(futures: Any, end: float) -> Iterator[Any]:
    """Yield the futures as they finish, until the time `end`."""
    try:
        yield from as_completed(futures, timeout=max(0.0, end - monotonic()))
    except FuturesTimeout:
        print("  the time is up", flush=True)
        for future in futures:
            future.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train and measure")
    parser.add_argument("--second", action="store_true", help="the second campaign, which keeps the weights")
    parser.add_argument("--out", type=Path, default=Path("forecast-data"), help="the folder of forecast.json")
    parser.add_argument("--max-seconds", type=float, default=530.0, help="stop then, and write what there is")
    parser.add_argument("--device", default=None, help="by default a GPU if there is one")
    parser.add_argument("--models", nargs="+", help="by default all of the catalogue")
    parser.add_argument("--tasks", nargs="+", help="by default all")
    parser.add_argument("--steps", nargs="+", type=int, help="by default those of each model")
    parser.add_argument("--seeds", type=int, help="seeds of each task; by default 2 or 3")
    parser.add_argument("--longest", type=int, default=50_000, help="the longest test strings")
    parser.add_argument("--workers", type=int, default=12, help="processes that measure")
    arguments = parser.parse_args()
    if arguments.train:
        from sdssm.devices import device_name, resolve_device

        device = resolve_device(arguments.device or "auto")
        arguments.device, arguments.device_name = str(device), device_name(device)
        run_campaign(arguments)
    else:
        parser.error("give --train")


if __name__ == "__main__":
    main()
