"""Run a function in a forked process with bounded memory and time, and judge what a command printed."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Bytes that an isolated call may allocate beyond what the process has already.
MEMORY = 1 << 30
#: Seconds of processor time within which wrong input must be refused: on a machine with free cores, and on a busy one,
#: where processes share caches.
CPU_SECONDS, BUSY_CPU_SECONDS = 2.0, 5.0
#: Seconds of processor time after which the kernel ends an isolated call.
CPU_LIMIT = 6
#: Seconds after which an isolated call is killed; more on a busy machine, see `wall_factor`.
WALL_LIMIT = 20.0
#: The most by which limits grow on a busy machine, and the variable that says that this one is: the load average, which
#: says so otherwise, lags by a minute.
MOST_FACTOR, IS_BUSY = 4.0, "SDSSM_CAMPAIGN_IS_BUSY"
#: The longest line of an error.
LONGEST_LINE = 300
#: The exit code of refused input.
REFUSED = 2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an isolated call ended."""

    code: int | None = None  #: exit code of a command; None if it did not return
    out: str = ""
    err: str = ""
    value: Any = None  #: what the function returned
    crash: str | None = None  #: an exception that was not caught, a signal, or a hang, in one line
    cpu_seconds: float = 0.0

    @property
    def text(self) -> str:
        """Everything that was printed."""
        return self.out + self.err


class _Captured(io.StringIO):
    """What is printed. It has a file descriptor, as a real stream has, which leads nowhere."""

    def fileno(self) -> int:
        return 1


def run_isolated(
    function: Callable[[], Any],
    *,
    folder: Path | None = None,
    memory: int | None = MEMORY,
    cpu_limit: int = CPU_LIMIT,
    wall_limit: float = WALL_LIMIT,
) -> Outcome:
    """Call a function in a fork of this process, in this folder, and return how it ended.

    The fork has everything that is imported here. Its prints are captured, and its exit code is that of SystemExit or,
    if the function returns an integer, that.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        _serve_call(function, folder, memory, cpu_limit, writer)
    os.close(writer)
    return collect_outcome(process, reader, wall_limit)


def start_isolated(
    function: Callable[[], Any], *, folder: Path, memory: int | None = MEMORY, cpu_limit: int = 60
) -> tuple[int, int]:
    """Start a function as `run_isolated` does; return process and pipe for `collect_outcome`."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        _serve_call(function, folder, memory, cpu_limit, writer)
    os.close(writer)
    return process, reader


def _serve_call(
    function: Callable[[], Any], folder: Path | None, memory: int | None, cpu_limit: int, writer: int
) -> None:
    """Call the function, send its outcome, and end this process."""
    try:
        out, err = _Captured(), _Captured()
        if folder is not None:
            os.chdir(folder)
        if memory is not None:
            limit = address_space() + memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = used.ru_utime + used.ru_stime
        resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + cpu_limit, int(spent) + cpu_limit + 2))
        code: int | None = None
        value, crash = None, None
        # Commands write to the standard streams of Python; what libraries write to the descriptors is not of interest.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        start = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                value = function()
                code = value if isinstance(value, int) else 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0
            except BaseException as error:
                crash = describe_crash(error)
        seconds = time.process_time() - start
        outcome = Outcome(
            code=code, out=out.getvalue(), err=err.getvalue(), value=value, crash=crash, cpu_seconds=seconds
        )
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
        data = pickle.dumps(outcome)
        while data:
            data = data[os.write(writer, data) :]
        os._exit(0)
    finally:
        os._exit(70)


def collect_outcome(process: int, reader: int, wall_limit: float = WALL_LIMIT) -> Outcome:
    """Wait for a process of `start_isolated`, kill it after `wall_limit` seconds, and return its outcome."""
    wall_limit *= wall_factor()
    deadline = time.monotonic() + wall_limit
    pieces, is_late = list[bytes](), False
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            is_late = True
            os.kill(process, signal.SIGKILL)
            break
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        pieces.append(piece)
    os.close(reader)
    _, status = os.waitpid(process, 0)
    if is_late:
        return Outcome(crash=f"it did not end within {wall_limit:.0f} s and was killed")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        more = f": more than {CPU_LIMIT} s of processor time" if name == "SIGXCPU" else ""
        return Outcome(crash=f"the process ended with {name}{more}")
    try:
        outcome = pickle.loads(b"".join(pieces))
    except (pickle.UnpicklingError, EOFError):
        return Outcome(crash=f"the process ended with exit code {os.waitstatus_to_exitcode(status)} and no result")
    assert isinstance(outcome, Outcome)
    return outcome


def describe_crash(error: BaseException) -> str:
    """Return an exception in one line: class, message and the place in this package where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "sdssm" in frame.filename and "campaign" not in frame.filename]
    place = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    message = " ".join(str(error).split())[:150]
    return f"{type(error).__name__}: {message}{place}"


def address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def run_sdssm(
    arguments: Sequence[str],
    folder: Path,
    *,
    memory: int | None = MEMORY,
    cpu_limit: int = CPU_LIMIT,
    wall_limit: float = WALL_LIMIT,
) -> Outcome:
    """Run one command of the command line in a fork, in this folder."""
    return run_isolated(
        lambda: call_main(arguments), folder=folder, memory=memory, cpu_limit=cpu_limit, wall_limit=wall_limit
    )


def call_main(arguments: Sequence[str]) -> int:
    """Run a command in this process."""
    from sdssm.cli import main

    os.environ["COLUMNS"] = "200"
    return main(list(arguments))


def cpu_allowance() -> float:
    """Return the seconds of processor time within which wrong input must be refused now."""
    return CPU_SECONDS if wall_factor() <= 1.0 else BUSY_CPU_SECONDS


def wall_factor() -> float:
    """Return how much longer than on an idle machine something may take now."""
    if IS_BUSY in os.environ:
        return MOST_FACTOR
    return min(MOST_FACTOR, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def find_fault(outcome: Outcome, *, allowance: float | None = None) -> str | None:
    """Return how a command broke the rules for its output, or None.

    A command succeeds, or refuses its input with exit code 2 (1 for a result that is not as wanted) and one line of at
    most 300 characters on standard error. Warnings have a line each. No line has control characters. Both take at
    most `allowance` seconds of processor time, by default those of `cpu_allowance` if input was refused.
    """
    if outcome.crash is not None:
        return outcome.crash
    if "Traceback" in outcome.text:
        return f"a traceback was printed: {outcome.text.strip().splitlines()[-1][:200]}"
    control = [c for c in outcome.text if c != "\n" and not c.isprintable()]
    if control:
        return f"the control character {control[0]!r} was printed"
    lines = [line for line in outcome.err.splitlines() if line]
    long = [line for line in lines if len(line) > LONGEST_LINE]
    if long:
        return f"a line of {len(long[0]):,} characters was printed: {long[0][:100]!r}..."
    if outcome.code == REFUSED:
        errors = [line for line in lines if not line.startswith("sdssm: warning: ")]
        if len(errors) != 1 or not errors[0].startswith("sdssm"):
            return f"an error of {len(errors)} lines: {errors[:2]}"
        limit = cpu_allowance() if allowance is None else allowance
        if outcome.cpu_seconds > limit:
            return f"refusing took {outcome.cpu_seconds:.1f} s of processor time; at most {limit:g} s are allowed"
    elif outcome.code not in (0, 1):
        return f"the exit code is {outcome.code}"
    if allowance is not None and outcome.cpu_seconds > allowance:
        return f"it took {outcome.cpu_seconds:.1f} s of processor time; at most {allowance:g} s are allowed"
    return None


def silence_threads() -> None:
    """Make forks of this process safe and cheap: torch computes in the calling thread alone."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
