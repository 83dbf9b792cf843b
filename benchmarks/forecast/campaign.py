"""Train models on tasks for calibration and on others for scoring, and measure where each fails, in a given time."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import sdssm
from benchmarks.campaign import Training, finished, make_scratch_folder, start_worker, stop_workers, train_until
from benchmarks.forecast.planning import PlannedRun, one_task_of_each_shape, plan
from sdssm.models import MODELS, TokenModel
from sdssm.runs import RunFolder
from sdssm.runs.provenance import versions
from sdssm.tasks import Task, get_task

#: Archives of weights: bytes of each, and their number.
ARCHIVE_BYTES, ARCHIVES = 15 * 2**20, 4
#: Models that cannot read in pieces are measured up to this length.
WHOLE_LENGTH = 1_024
#: Seconds that are kept for writing the file.
RESERVE = 10.0


# -- in worker processes -----------------------------------------------------------------------------------------------


def warm_up(model: str, tasks: Sequence[str], device: str) -> float:
    """Compile the kernels of a model, which all processes share through the cache of Triton; return the seconds."""
    from sdssm.checking.forecast_measurement import measure_failing_length

    started = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runs = sdssm.train(
            list(tasks), model=model, seeds=2, steps=2, device=device, out=folder, settings={"checkpoint_every": 10}
        )
        for run in runs:
            trained = sdssm.load(run.path).to(device)
            measure_failing_length(trained, get_task(run.config.task), longest=200)
            forecast_record(trained, get_task(run.config.task))
    return monotonic() - started


def forecast_record(model: TokenModel, task: Task) -> dict[str, Any]:
    """Return what the forecast of a model is made of, before the calibrated factor."""
    from sdssm.checking.forecast import CALIBRATION, forecast_failure

    started = monotonic()
    raw = replace(CALIBRATION, factor=1.0, unseen=1.0)
    forecast = forecast_failure(model, task, calibration=raw)
    record = {
        "crossing": None if forecast.length is None else float(f"{forecast.length:.4g}"),
        "ratio": None if math.isnan(forecast.ratio) else float(f"{forecast.ratio:.4g}"),
        "cause": forecast.cause,
        "reason": forecast.reason,
        "retention": None if math.isnan(forecast.retention) else float(f"{forecast.retention:.4g}"),
    }
    if forecast.retention < CALIBRATION.forgets:
        length = forecast_failure(model, task, calibration=replace(raw, forgets=-1.0)).length
        record["without_rule"] = None if length is None else float(f"{length:.4g}")
    return {**record, "seconds": round(monotonic() - started, 2)}


def measure(run: PlannedRun, device: str, longest: int) -> dict[str, Any] | None:
    """Return the distances at training lengths and the measured failing length; None if the run has no weights."""
    import torch

    from sdssm.checking.accuracy_by_length import FAILING_ACCURACY
    from sdssm.checking.forecast_measurement import measure_failing_length

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
    if learned:
        model.save(run.folder / "saved")
        truth = measure_failing_length(model, task, longest=limit)
        row |= {
            "failing_length": truth.length,
            "longest": truth.longest,
            "lengths": truth.lengths,
            "accuracy": [round(share, 2) for share in truth.accuracy],
        }
        row["forecast"] = forecast_record(model, task)
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    row["seconds"] = round(monotonic() - started, 2)
    return row


# -- the campaign ------------------------------------------------------------------------------------------------------


def run_campaign(arguments: argparse.Namespace) -> Path:
    """Train and measure, and write the file."""
    started = monotonic()
    end = started + arguments.max_seconds
    models = arguments.models or list(MODELS)
    root = make_scratch_folder("forecast")
    runs = plan(root, models, arguments.tasks, arguments.steps)
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
        trainings = [Training(run.model, run.task, run.seed, run.steps, run.folder) for run in runs]
        train_until(root, trainings, arguments.device, started + 0.68 * arguments.max_seconds)
        print(f"  {monotonic() - started:4.0f} s: trained", flush=True)
        # In an order that has nothing to do with the results, so that a measurement cut short is not biased. Mamba is
        # first, since it takes two minutes to read strings of length 50,000.
        order = sorted(runs, key=lambda run: (run.model != "mamba", run.seed % 10, run.task, run.steps, run.model))
        jobs = {pool.submit(measure, run, arguments.device, arguments.longest): run for run in order}
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
            "command": f"python -m benchmarks.forecast --train --max-seconds {arguments.max_seconds:.0f}",
            "device": arguments.device_name,
            "versions": versions(),
            "planned": len(runs),
            "seconds": round(monotonic() - started),
        }
        rows.sort(key=lambda row: (row["model"], row["task"], row["planned_steps"], row["seed"]))
        path.write_text(json.dumps({**description, "runs": rows}, separators=(",", ":")))
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)
        write_archives(root, rows, arguments.out)
        stop_workers(pool)
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


def measure_archives(folders: Sequence[Path], out: Path) -> None:
    """Forecast again from the weights of campaigns, and write their runs as one file."""
    import torch

    torch.set_num_threads(1)
    campaigns, rows = [], []
    for folder in folders:
        data = json.loads((folder / "forecast.json").read_text())
        campaigns.append({name: value for name, value in data.items() if name != "runs"})
        with tempfile.TemporaryDirectory() as extracted:
            for archive in sorted(folder.glob("weights-*.zip")):
                zipfile.ZipFile(archive).extractall(extracted)
            for row in data["runs"]:
                weights = Path(extracted) / row["folder"]
                if row["learned"] and weights.is_dir():
                    row["forecast"] = forecast_record(sdssm.load(weights), get_task(row["task"]))
                    print(row["model"], row["task"], row["failing_length"], row["forecast"], flush=True)
                rows.append(row)
    out.mkdir(parents=True, exist_ok=True)
    (out / "forecast.json").write_text(json.dumps({"campaigns": campaigns, "runs": rows}, separators=(",", ":")))
