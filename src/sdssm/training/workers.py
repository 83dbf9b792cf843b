"""Training on several devices: one process for each, which takes the next group whenever it has room.

Processes and not threads: steps of small models are bound by Python, which runs one thread at a time, and capturing a
CUDA graph affects all threads of a process. In its process a worker trains as a training on one device does, so the
numbers of a run do not depend on how many workers there are, or on which of them trains it.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sdssm.errors import RunError, first_line
from sdssm.formatting import count_of
from sdssm.models.sent_models import send_models
from sdssm.runs.claim import release_folder
from sdssm.training.group import ReplicaGroup
from sdssm.training.progress import Progress, SilentProgress, WarningProgress
from sdssm.training.sharing import Worker, expected_work, next_groups
from sdssm.training.signals import StopFlag
from sdssm.training.worker_link import FromWorker, SentGroup, WorkerLink, WorkerSettings

#: Seconds between two looks at signals and at the workers, if none of them reports anything.
POLL_SECONDS = 0.1


@dataclass
class _WorkerState:
    """A running worker, and the groups that it has taken and not ended, by their numbers."""

    worker: Worker
    link: WorkerLink
    held: set[int] = field(default_factory=set)
    has_ended: bool = False


class WorkerPool:
    """Trains groups on several workers, and shows them as one training.

    A worker that fails saves its groups if it can. The others train all groups that have not started, and then the
    first error is raised: after hours of training one broken device must not stop the others. `seconds` are estimates
    of the time of each group, by the folder of a run; the longest groups start first.
    """

    def __init__(
        self,
        groups: Sequence[ReplicaGroup],
        workers: Sequence[Worker],
        progress: Progress,
        stop: StopFlag,
        seconds: Mapping[Path, float] | None = None,
    ) -> None:
        self.groups, self._progress, self._stop = list(groups), progress, stop
        self._workers = list(workers)[: max(len(self.groups), 1)]
        #: The expected work of the groups that have not started, by number, and of all groups.
        self._work = expected_work(self.groups, seconds or {})
        self._waiting = dict(enumerate(self._work))
        self._states: list[_WorkerState] = []
        self._inbox: queue.Queue[tuple[int, FromWorker]] = queue.Queue()
        #: Step and state of each replica, as the worker of the group reported them last.
        self._reported: dict[int, tuple[int, list[tuple[float, float, bool]]]] = {}
        self._messages: set[str] = set()
        self._error: BaseException | None = None  # of a worker
        self._has_failed = False  # whether this process failed

    def run(self) -> None:
        """Train all groups; return when they have ended, or are saved after a signal."""
        models = send_models(folder.config.model for group in self.groups for folder in group.folders)
        shows_warnings_only = isinstance(self._progress, WarningProgress)
        try:
            for number, worker in enumerate(self._workers):
                settings = WorkerSettings(
                    device=worker.device,
                    threads=worker.threads,
                    at_once=worker.at_once,
                    models=models,
                    shows_warnings_only=shows_warnings_only,
                )
                self._states.append(_WorkerState(worker, WorkerLink(settings, self._receive(number))))
            self._serve()
        except Exception:  # of the display
            self._progress, self._has_failed = SilentProgress(), True
            with suppress(Exception):  # the first error is the one to report
                self._serve()  # until all workers have saved their groups
            self._end_waiting()
            raise
        finally:  # after a second signal no worker continues
            for state in self._states:
                state.link.close()
        self._end_waiting()
        if self._error is not None:
            raise self._error

    def _receive(self, number: int) -> Callable[[FromWorker], None]:
        return lambda message: self._inbox.put((number, message))

    def _serve(self) -> None:
        """Answer the workers until all have ended."""
        is_told = False
        while any(not state.has_ended for state in self._states):
            if self._is_stopping() and not is_told:
                is_told = True
                for state in self._states:
                    state.link.send("stop", None)
            with suppress(queue.Empty):
                number, (kind, value) = self._inbox.get(timeout=POLL_SECONDS)
                self._handle(self._states[number], kind, value)

    def _is_stopping(self) -> bool:
        return self._stop() or self._has_failed

    def _handle(self, state: _WorkerState, kind: str, value: Any) -> None:
        if kind == "take":
            state.link.send("groups", self._hand_over(state, value))
        elif kind == "rows":
            self._reported |= value
            self._show()
        elif kind == "ended":
            state.held -= set(value)
        elif kind == "message":
            if value not in self._messages:  # each worker says how the models of others are executed
                self._messages.add(value)
                self._progress.message(value)
        elif kind == "failed":
            self._fail(state, value)
        elif kind == "closed":
            if not state.has_ended and value != "done":
                self._fail(state, self._lost_error(state))
            state.has_ended = True

    # -- groups ------------------------------------------------------------------------------------------------------

    def _hand_over(self, state: _WorkerState, wanted: int) -> list[SentGroup]:
        """Return the next groups for a worker: at most its share, as another worker may start later."""
        if self._is_stopping():
            return []
        others = [self._work_left(other) for other in self._states if other is not state and not other.has_ended]
        numbers = next_groups(self._waiting, self._work_left(state), others, wanted)
        state.held |= set(numbers)
        for number in numbers:
            del self._waiting[number]
            for folder in self.groups[number].folders:
                release_folder(folder.path)  # the worker claims it
        return [SentGroup.describe(number, self.groups[number]) for number in numbers]

    def _work_left(self, state: _WorkerState) -> float:
        """Return the expected work of the groups that a worker holds, as far as it has not reported it as done."""
        work = 0.0
        for number in state.held:
            group = self.groups[number]
            step = self._reported[number][0] if number in self._reported else group.step
            work += self._work[number] * (group.end_step - step) / max(group.end_step - group.step, 1)
        return work

    def _end_waiting(self) -> None:
        """Mark the groups that no worker has started as stopped."""
        for number in self._waiting:
            try:
                self.groups[number].end()
            except Exception as error:
                self._error = self._error or error

    # -- errors ------------------------------------------------------------------------------------------------------

    def _fail(self, state: _WorkerState, error: BaseException) -> None:
        """Remember the first error, and say that the other workers continue."""
        if self._error is None:
            self._error = error
        state.has_ended = True
        others = sum(not other.has_ended for other in self._states)
        if others:
            left = count_of(len(self._waiting), "waiting group")
            self._progress.message(
                f"{state.worker.device} failed: {first_line(error)}; {count_of(others, 'other device')} "
                f"continue{'s' if others == 1 else ''} with {left}"
            )

    def _lost_error(self, state: _WorkerState) -> RunError:
        return RunError(
            f"the process that trained on {state.worker.device} was killed, possibly because memory ran out; its runs "
            "resume from their last checkpoints with sdssm train --resume"
        )

    # -- progress display --------------------------------------------------------------------------------------------

    def _show(self) -> None:
        rows, done = list[tuple[float, float, bool]](), 0
        for number, group in enumerate(self.groups):
            step, snapshot = self._reported.get(number, (group.step, group.snapshot()))
            rows += snapshot or []
            done += step
        total = sum(group.end_step for group in self.groups)
        steps = max(group.end_step for group in self.groups)
        loss, accuracy, alive = zip(*rows, strict=True)
        self._progress.update(steps * done // total, loss, accuracy, alive)
