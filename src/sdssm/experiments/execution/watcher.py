"""How far runs are that train elsewhere, from what they leave in their folders."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from sdssm.experiments.planning.plan import PlannedRun
from sdssm.runs.folder import EVENTS, STATUS
from sdssm.training.group import last_step
from sdssm.training.progress import Progress

#: Bytes at the end of a log that hold its last events.
TAIL = 2_000
#: The part of the time that is spent on looking, at most: there may be hundreds of runs on a slow file system.
PART = 0.1


@dataclass(frozen=True, kw_only=True)
class RunStanding:
    """How far one run is; nan where it has said nothing yet."""

    step: int = 0
    loss: float = math.nan
    accuracy: float = math.nan
    diverged: bool = False


def standing(folder: Path) -> RunStanding:
    """How far the run in a folder is, by its last event. Whatever cannot be read now can be later."""
    step, loss, accuracy, diverged = 0, math.nan, math.nan, False
    for event in _last_events(folder / EVENTS):
        step = max(step, event["step"]) if isinstance(event.get("step"), int) else step
        loss = event["loss"] if isinstance(event.get("loss"), float) else loss
        accuracy = event["accuracy"] if isinstance(event.get("accuracy"), float) else accuracy
        diverged = bool(event.get("diverged", False))
    with suppress(OSError, ValueError):
        status = json.loads((folder / STATUS).read_bytes())
        step, diverged = max(step, int(status["step"])), diverged or status["status"] == "diverged"
    return RunStanding(step=step, loss=loss, accuracy=accuracy, diverged=diverged)


def least_step(folders: Sequence[Path]) -> int:
    """How far the slowest of a group is. Those that diverged say nothing: they stay where they are for ever."""
    found = [standing(folder) for folder in folders]
    return min((one.step for one in found if not one.diverged), default=max(one.step for one in found))


def _last_events(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - TAIL))
            lines = file.read().split(b"\n")[0 if end <= TAIL else 1 : -1]
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            event = json.loads(line)
            found += [event] if isinstance(event, dict) else []
    return found


class Watch:
    """Shows runs that train elsewhere, to a share of their steps. The step is the mean over all of them, so that the
    time left is that of all."""

    def __init__(self, runs: Sequence[PlannedRun], out: Path, progress: Progress, until: float = 1.0) -> None:
        self._runs, self._progress = list(runs), progress
        self._last = [last_step(run.config.train, until) for run in runs]
        self._steps = max(self._last)
        self._ended: dict[Path, RunStanding] = {}
        self._next = 0.0
        names = [str(run.folder.relative_to(out)) for run in runs]
        progress.start(names, self._steps, self._mean(self._read()))

    def look(self, *, last: bool = False) -> None:
        """Read the folders, if it is time or the last time, and show what they say, once one says something."""
        began = monotonic()
        if began < self._next and not last:
            return
        found = self._read()
        self._next = monotonic() + (monotonic() - began) * (1 / PART - 1)
        if all(math.isnan(one.loss) and not one.diverged for one in found):
            return
        loss, accuracy = [one.loss for one in found], [one.accuracy for one in found]
        self._progress.update(self._mean(found), loss, accuracy, [not one.diverged for one in found])

    def _read(self) -> list[RunStanding]:
        """How far each run is; one that has come to its end is not read again."""
        found = []
        for run, last in zip(self._runs, self._last, strict=True):
            at = self._ended.get(run.folder) or standing(run.folder)
            if at.diverged or at.step >= last:
                self._ended[run.folder] = at
            found.append(at)
        return found

    def _mean(self, found: Sequence[RunStanding]) -> int:
        done = [1.0 if one.diverged else min(1.0, one.step / last) for one, last in zip(found, self._last, strict=True)]
        return int(self._steps * sum(done) / len(done))
