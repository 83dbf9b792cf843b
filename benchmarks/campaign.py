"""What the campaigns share: trainings and measurements that must end within a given time."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as FuturesTimeout
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from sdssm.models.catalogue import default_preset
from sdssm.runs.provenance import start_stamp
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import get_task


@dataclass(frozen=True)
class Training:
    """A run of a campaign, with the default preset of its model."""

    model: str
    task: str
    seed: int
    steps: int
    folder: Path


def make_scratch_folder(name: str) -> Path:
    """Return a new folder for run folders that are removed at the end, in memory if the system has a place there."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=memory if memory.is_dir() else None))


def train_until(root: Path, trainings: Sequence[Training], device: str, end: float) -> None:
    """Train side by side, all below the folder `root`; at the time `end` what is under way is stopped and saved."""
    from sdssm.training.trainer import TrainingStopped, train_runs

    stamp, planned = start_stamp(), []
    for run in trainings:
        task, preset = get_task(run.task), default_preset(run.model)
        settings = resolve_settings(run.model, preset, task.name, {"steps": run.steps})
        planned.append((run.folder, task, create_config(task, run.seed, settings, preset, stamp)))
    timer = threading.Timer(max(end - monotonic(), 1.0), os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    try:
        train_runs(root, planned, device=device, progress=True)
    except TrainingStopped:
        print("  training stopped by the time limit", flush=True)
    finally:
        timer.cancel()


def start_worker() -> None:
    """Use one thread in a process that measures, and leave signals to the main process."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def finished(futures: Mapping[Future[Any], Any], end: float) -> Iterator[Future[Any]]:
    """Yield the futures as they finish, until the time `end`."""
    try:
        yield from as_completed(futures, timeout=max(0.0, end - monotonic()))
    except FuturesTimeout:
        print("  the time is up", flush=True)
        for future in futures:
            future.cancel()


def stop_workers(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool without waiting for what they are measuring."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
