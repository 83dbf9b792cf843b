"""The link between a training and one of its worker processes: how it is started, and what is sent."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sdssm.models.sent_models import SentModel
from sdssm.runs import RunFolder
from sdssm.tasks import Task
from sdssm.training.group import ReplicaGroup

#: What a worker executes. Its modules are found where ours are; the script that was started is not imported, so that it
#: needs no `if __name__ == "__main__"`.
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from sdssm.training.worker_process import main; main()"
)
#: Seconds that a worker may take to exit after its last message.
EXIT_SECONDS = 10.0

#: A message from a worker, by kind:
#: take: the number of groups that it has room for, answered by `groups`;
#: rows: step and snapshot of its groups by number; ended: numbers of groups that have ended;
#: message: a line for the display; failed: the error that ended it, after it has saved its groups;
#: closed: nothing more will come; the value is "done" if it said so itself, and None if its process has ended.
FromWorker = tuple[str, Any]


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker must know at its start."""

    device: str
    threads: int | None
    at_once: int | None
    models: Sequence[SentModel]
    shows_warnings_only: bool  #: whether the training has no display


@dataclass(frozen=True, kw_only=True)
class SentGroup:
    """A group as it is sent to a worker: the folders and tasks of its replicas, and where it resumes."""

    number: int
    folders: Sequence[Path]
    tasks: Sequence[Task]
    resume_step: int | None
    tensorboard: bool
    until: float

    @classmethod
    def describe(cls, number: int, group: ReplicaGroup) -> SentGroup:
        """Return a description of a waiting group, for another process."""
        return cls(
            number=number,
            folders=[folder.path.absolute() for folder in group.folders],
            tasks=group.tasks,
            resume_step=group.resume_step,
            tensorboard=group.tensorboard,
            until=group.until,
        )

    def open(self) -> ReplicaGroup:
        """Return the group, and claim its folders."""
        folders = [RunFolder.open(path) for path in self.folders]
        for folder in folders:
            if folder.status != "diverged":
                folder.claim()
        members = list(zip(folders, self.tasks, strict=True))
        return ReplicaGroup(members, self.resume_step, tensorboard=self.tensorboard, until=self.until)


class WorkerLink:
    """A worker process; `receive` is called with each of its messages, in another thread."""

    def __init__(self, settings: WorkerSettings, receive: Callable[[FromWorker], None]) -> None:
        # A session of its own: Ctrl-C in a terminal reaches this process alone, which tells the workers.
        self._process = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-c", PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to_worker, self._from_worker = self._process.stdin, self._process.stdout
        threading.Thread(target=self._read, args=(receive,), daemon=True).start()
        self.send("settings", settings)

    def _read(self, receive: Callable[[FromWorker], None]) -> None:
        with suppress(OSError, EOFError, pickle.UnpicklingError, ValueError):  # it was killed, or is closed
            while True:
                receive(read_message(self._from_worker))
        receive(("closed", None))

    def send(self, kind: str, value: object) -> None:
        """Send a message; a worker that has ended ignores it."""
        with suppress(OSError, ValueError):
            write_message(self._to_worker, kind, value)

    def close(self) -> None:
        """End the process: without its input it exits at once, saved or not."""
        with suppress(OSError):
            self._to_worker.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(OSError):
            self._from_worker.close()


def write_message(file: IO[bytes], kind: str, value: object) -> None:
    """Write one message."""
    pickle.dump((kind, value), file)
    file.flush()


def read_message(file: IO[bytes]) -> tuple[str, Any]:
    """Read one message of the process that started this one, or that this one started; raise EOFError at the end."""
    kind, value = pickle.load(file)  # noqa: S301  # nobody else writes into this pipe
    return kind, value
