"""The process of a worker: train groups on one device, and report to the training that started it."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TextIO

import torch

from sdssm.devices import select_device
from sdssm.errors import RunError, RunWarning, SdssmError, first_line
from sdssm.models.sent_models import import_sent_models
from sdssm.training.group import ReplicaGroup
from sdssm.training.progress import Progress, SilentProgress, WarningProgress
from sdssm.training.queue import TrainingQueue
from sdssm.training.rounds import train_queue
from sdssm.training.signals import StopFlag
from sdssm.training.worker_link import SentGroup, WorkerSettings, read_message, write_message


class Report:
    """The other end of the link: sends messages, and receives groups and the request to stop.

    If the training is killed, this process exits at once, as if it had been killed too.
    """

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self._source, self._target, self._lock = source, target, threading.Lock()
        self._groups: queue.Queue[list[SentGroup]] = queue.Queue()
        self.stop = StopFlag()
        self.settings: WorkerSettings = read_message(source)[1]
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                kind, value = read_message(self._source)
                if kind == "groups":
                    self._groups.put(value)
                elif kind == "stop":
                    self.stop.handle(signal.SIGINT, None)
        except (OSError, EOFError, pickle.UnpicklingError):
            os._exit(1)

    def send(self, kind: str, value: object = None) -> None:
        """Send a message."""
        with self._lock:
            write_message(self._target, kind, value)

    def take(self, count: int) -> list[SentGroup]:
        """Return up to `count` groups that have not started; none if no group waits, or the others shall have them."""
        self.send("take", count)
        return self._groups.get()

    def message(self, text: str) -> None:
        """Send a line for the display."""
        self.send("message", text)


class PulledQueue(TrainingQueue):
    """A training queue that takes its groups one by one from the training that started this process."""

    def __init__(self, report: Report) -> None:
        self._report, self._is_exhausted = report, False
        self._numbers: dict[int, int] = {}  # of the groups, by their places in the queue
        self._ended: set[int] = set()
        super().__init__([], torch.device(report.settings.device), report.settings.at_once)

    @property
    def is_done(self) -> bool:
        return self._is_exhausted and super().is_done

    def start_groups(self) -> list[ReplicaGroup]:
        waiting = sum(group.state == "waiting" for group in self.groups)
        wanted = self._free_places() - waiting
        if wanted > 0 and not self._is_exhausted:
            sent = self._report.take(wanted)
            # Without a group in hand the answer is empty only if none is left.
            self._is_exhausted = not sent and not waiting and not self.training
            for group in sent:
                self._numbers[len(self.groups)] = group.number
                self.groups.append(group.open())
        return super().start_groups()

    def end_done_groups(self) -> None:
        super().end_done_groups()
        ended = {self._numbers[k] for k, group in enumerate(self.groups) if group.state == "ended"} - self._ended
        if ended:
            self._ended |= ended
            self._report.send("ended", sorted(ended))

    def show(self, progress: Progress) -> None:
        """Send step and state of the groups that have done a step and whose end was not yet reported."""
        self._mark_shown()
        rows = {}
        for k, group in enumerate(self.groups):
            snapshot = group.snapshot() if self._numbers[k] not in self._ended else None
            if snapshot is not None and group.state != "waiting":
                rows[self._numbers[k]] = group.step, snapshot
        if rows:
            self._report.send("rows", rows)


class SentWarnings(WarningProgress):
    """The display of a worker if the training has none: messages are warnings there."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def message(self, text: str) -> None:
        self._report.message(text)


class SentMessages(SilentProgress):
    """The display of a worker: the training shows its messages."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def message(self, text: str) -> None:
        self._report.message(text)


def main() -> None:
    """Train the groups that the other end of standard input sends, until there are none left."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the training handles them
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model prints must not end up between the messages
    report = Report(source, target)
    with warnings.catch_warnings():
        original = warnings.showwarning

        def show_warning(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, RunWarning):
                report.message(str(message))
            else:
                original(message, category, filename, lineno, file, line)

        warnings.showwarning = show_warning
        try:
            _train(report)
        except BaseException as error:
            report.send("failed", _sendable(error))
    report.send("closed", "done")
    sys.stdout.flush()
    os._exit(0)  # the thread that reads would hold the process


def _train(report: Report) -> None:
    settings = report.settings
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    select_device(torch.device(settings.device))
    import_sent_models(settings.models)
    display = SentWarnings(report) if settings.shows_warnings_only else SentMessages(report)
    train_queue(PulledQueue(report), display, report.stop)


def _sendable(error: BaseException) -> BaseException:
    """Return the error, with its traceback as a note; or one like it if it cannot be sent."""
    if not isinstance(error, SdssmError):
        lines: Sequence[str] = traceback.format_exception(error)
        error.add_note("in a worker process:\n" + "".join(lines))
    with suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
        if str(copy) == str(error):
            return error
    return RunError(f"{type(error).__name__}: {first_line(error)}")
