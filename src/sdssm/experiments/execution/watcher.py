"""Progress of runs that train in other processes, read from their folders."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from sdssm.checksums import FILE_CHECKSUM
from sdssm.experiments.planning.plan import PlannedRun
from sdssm.files import open_regular_file, read_regular_file
from sdssm.runs.constant_answers import training_constants
from sdssm.runs.events import decode_event
from sdssm.runs.own_files import EVENTS_FILE, STATUS_FILE
from sdssm.training.progress import Progress
from sdssm.training.schedules import last_step

#: Bytes at the end of a log that contain its last events.
TAIL = 2_000
#: The largest share of the time spent on reading folders: there may be hundreds of runs on a slow file system.
READING_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """How far one run is; NaN for values that were not logged yet."""

    step: int = 0
    loss: float = math.nan
    accuracy: float = math.nan
    diverged: bool = False


def read_progress(folder: Path) -> RunProgress:
    """Return how far the run in a folder is, from its last events. Files that cannot be read are ignored."""
    step, loss, accuracy, diverged = 0, math.nan, math.nan, False
    for event in _last_events(folder / EVENTS_FILE):
        step = max(step, event["step"]) if isinstance(event.get("step"), int) else step
        loss = event["loss"] if isinstance(event.get("loss"), float) else loss
        accuracy = event["accuracy"] if isinstance(event.get("accuracy"), float) else accuracy
        diverged = bool(event.get("diverged", False))
    with suppress(OSError, ValueError):  # a damaged file is a ValueError too
        status, _ = FILE_CHECKSUM.verify(read_regular_file(folder / STATUS_FILE))
        step, diverged = max(step, int(status["step"])), diverged or status["status"] == "diverged"
    return RunProgress(step=step, loss=loss, accuracy=accuracy, diverged=diverged)


def least_step(folders: Sequence[Path]) -> int:
    """Return the step of the slowest run of a group, without diverged runs, which no longer advance."""
    runs = [read_progress(folder) for folder in folders]
    return min((run.step for run in runs if not run.diverged), default=max(run.step for run in runs))


def _last_events(path: Path) -> list[dict[str, Any]]:
    try:
        with os.fdopen(open_regular_file(path), "rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - TAIL))
            lines = file.read().split(b"\n")[0 if end <= TAIL else 1 : -1]
    except OSError:
        return []
    return [event for event, _ in map(decode_event, lines) if event is not None]


class ProgressWatcher:
    """Shows the progress of runs that train in other processes, up to a share of their steps.

    The step shown is the mean over all runs, so that the remaining time is that of all runs.
    """

    def __init__(self, runs: Sequence[PlannedRun], out: Path, progress: Progress, until: float = 1.0) -> None:
        self._runs, self._progress = list(runs), progress
        self._last_steps = [last_step(run.config.train, until) for run in runs]
        self._steps = max(self._last_steps)
        self._ended: dict[Path, RunProgress] = {}
        self._next_update = 0.0
        names = [str(run.folder.relative_to(out)) for run in runs]
        constants = training_constants([run.config for run in runs])
        progress.start(names, self._steps, self._mean_step(self._read()), constants)

    def update(self, *, force: bool = False) -> None:
        """Read the folders and update the display, unless the last update was too recent."""
        started = monotonic()
        if started < self._next_update and not force:
            return
        runs = self._read()
        self._next_update = monotonic() + (monotonic() - started) * (1 / READING_SHARE - 1)
        if all(math.isnan(run.loss) and not run.diverged for run in runs):
            return  # nothing was logged yet
        loss, accuracy = [run.loss for run in runs], [run.accuracy for run in runs]
        self._progress.update(self._mean_step(runs), loss, accuracy, [not run.diverged for run in runs])

    def _read(self) -> list[RunProgress]:
        """Return the progress of each run. The folder of a run that has ended is not read again."""
        runs = []
        for planned, last in zip(self._runs, self._last_steps, strict=True):
            run = self._ended.get(planned.folder) or read_progress(planned.folder)
            if run.diverged or run.step >= last:
                self._ended[planned.folder] = run
            runs.append(run)
        return runs

    def _mean_step(self, runs: Sequence[RunProgress]) -> int:
        shares = [
            1.0 if run.diverged else min(1.0, run.step / last) for run, last in zip(runs, self._last_steps, strict=True)
        ]
        return int(self._steps * sum(shares) / len(shares))
