"""Commands that the page starts: one at a time, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import join
from typing import Any, Literal

from sdssm.errors import StudioError, did_you_mean

#: The commands of `sdssm` that the page may start, each with the folder of a run as its only argument.
ACTIONS = ("evaluate", "extract", "certify", "horizon")
#: Commands that may wait, commands that are remembered, and characters of their output that are kept.
MAX_WAITING, MAX_REMEMBERED, MAX_OUTPUT = 20, 50, 8000
#: Seconds that a stopped command has before it is killed.
STOP_SECONDS = 1.0

State = Literal["waiting", "running", "finished", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class StartedAction:
    """A command that the page asked for, and how far it is.

    `output` is the end of what it printed. `exit_code` is None until it ended.
    """

    id: int
    run: str
    action: str
    command: str
    state: State = "waiting"
    exit_code: int | None = None
    output: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ("waiting", "running")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class ActionQueue:
    """Runs commands on run folders, one after the other, in a thread of its own.

    Commands are started without a shell, with `program` and the folder as arguments. They import no code that a folder
    names, since `--trust` is never passed. `close` ends the running command.
    """

    def __init__(self, program: tuple[str, ...] = (sys.executable, "-P", "-m", "sdssm")) -> None:
        self._program = program  # -P: files of the working directory do not replace modules
        self._changed = threading.Condition()
        self._started: dict[int, StartedAction] = {}
        self._folders: deque[tuple[int, Path]] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="studio actions", daemon=True)
        self._thread.start()

    def submit(self, action: str, run: str, folder: Path) -> StartedAction:
        """Let a command wait for its turn, and return it; one that already waits or runs is not repeated."""
        if action not in ACTIONS:
            raise StudioError(f"there is no action {action!r}; {did_you_mean(action, ACTIONS)}")
        with self._changed:
            for started in self._started.values():
                if started.is_pending and (started.action, started.run) == (action, run):
                    return started
            if len(self._folders) >= MAX_WAITING:
                raise StudioError(f"{MAX_WAITING} commands wait already; try again when some of them have ended")
            number = max(self._started, default=0) + 1
            started = StartedAction(id=number, run=run, action=action, command=join(["sdssm", action, str(folder)]))
            self._started[number] = started
            for old in [key for key, item in self._started.items() if not item.is_pending][:-MAX_REMEMBERED]:
                del self._started[old]
            self._folders.append((number, folder))
            self._changed.notify_all()
            return started

    def started(self) -> list[StartedAction]:
        """Return the commands that wait, run or have ended lately, the newest first."""
        with self._changed:
            return list(reversed(self._started.values()))

    def close(self) -> None:
        """End the running command, start no other, and wait for the thread."""
        with self._changed:
            self._is_closed = True
            process = self._process
            self._changed.notify_all()
        if process is not None:
            _end_process(process)
        self._thread.join(2 * STOP_SECONDS)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._folders or self._is_closed)
                if self._is_closed:
                    return
                number, folder = self._folders.popleft()
                try:
                    process = self._start(self._started[number].action, folder)
                except OSError as error:
                    output = f"the command cannot be started: {error.strerror}"
                    self._started[number] = replace(self._started[number], state="failed", output=output)
                    continue
                self._process = process
                self._started[number] = replace(self._started[number], state="running")
            self._follow(number, process)

    def _start(self, action: str, folder: Path) -> subprocess.Popen[bytes]:
        # A path that starts with a dash would be an option.
        path = f"./{folder}" if str(folder).startswith("-") else str(folder)
        return subprocess.Popen(  # noqa: S603  # a fixed list of commands; the path is one of the served run folders
            [*self._program, action, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal reaches the studio alone, which then ends the command
        )

    def _follow(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Keep the end of what a command prints until it ends."""
        assert process.stdout is not None
        output = b""
        with process.stdout:
            while piece := os.read(process.stdout.fileno(), 4096):
                output = (output + piece)[-4 * MAX_OUTPUT :]
                with self._changed:
                    self._started[number] = replace(self._started[number], output=_readable_end(output))
        code = process.wait()
        with self._changed:
            self._process = None
            state: State = "stopped" if self._is_closed else "finished" if code == 0 else "failed"
            self._started[number] = replace(self._started[number], state=state, exit_code=code)


def _readable_end(output: bytes) -> str:
    """Return the end of an output as text; of a line that was written over, the last version.

    >>> _readable_end(b"step 1\\rstep 2\\ndone\\n")
    'step 2\\ndone\\n'
    """
    text = output.decode(errors="replace").replace("\r\n", "\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))[-MAX_OUTPUT:]


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started; kill what has not ended after STOP_SECONDS."""
    if not hasattr(os, "killpg"):
        process.terminate()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)  # also what it started, if that ignored the first signal
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
