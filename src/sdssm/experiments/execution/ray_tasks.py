"""What a worker of a Ray cluster does: train one group of runs, or evaluate some, in folders that all nodes share."""

from __future__ import annotations

import secrets
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from platform import node

import torch

from sdssm.devices import resolve_device
from sdssm.errors import RunError, RunWarning
from sdssm.experiments.execution.runner import evaluate_file
from sdssm.experiments.specs.spec import Asked
from sdssm.files import format_path
from sdssm.models.classifier import CONFIG
from sdssm.runs import RunFolder
from sdssm.runs.claim import is_held, make_room, release
from sdssm.training.planning import Planned
from sdssm.training.progress import Silent
from sdssm.training.queue import NoRoomError
from sdssm.training.trainer import TrainingStopped, train_all

#: The file by which a worker knows that it sees the folder of the one that sent it.
MARK = ".cluster"
#: Seconds that a worker looks for it: what one machine writes, another may see a little later.
SEEN_WITHIN = 15.0
#: Seconds that a worker waits for one before it on the same machine that is about to end.
FREE_WITHIN = 60.0


@dataclass(frozen=True, kw_only=True)
class Share:
    """Where a worker works: a device, and how much of its memory is meant for it."""

    device: str
    memory: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a task ended, if not by an error: done, stopped by a signal, or for want of memory on its share of a GPU."""

    ended: str = "done"
    node: str = ""
    messages: tuple[str, ...] = ()


def make_mark(out: Path) -> str:
    """What stands in the mark of a folder; it is made where there is none."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / MARK).exists():
            (out / MARK).write_text(secrets.token_hex(16))
        return (out / MARK).read_text()
    except (OSError, ValueError) as error:
        raise RunError(f"cannot write {format_path(out / MARK)}: {error}; choose another --out") from None


def train_group(out: Path, mark: str, planned: Sequence[Planned], until: float, share: Share, again: bool) -> Outcome:
    """Train runs of one shape side by side, from where they are to a share of their steps; `again` where another worker
    had them before.
    """
    _check_shared(out, mark)
    resolve_device(share.device)  # before a folder is made
    told = _Told()
    folders = [folder for folder, _, _ in planned]
    make_room(len(folders))
    with told.listening():
        try:
            with _memory(share):
                if again:
                    _wait_until_free(folders)
                for folder, _, config in planned:
                    # One that was lost while it made them may have left some: all of them begin as one group.
                    if not (folder / CONFIG).exists():
                        RunFolder.create(folder, config)
                train_all(out, planned, device=share.device, resume=True, progress=told, until=until)
        except TrainingStopped:
            return Outcome(ended="stopped", node=node(), messages=tuple(told.lines))
        except NoRoomError:
            return Outcome(ended="memory", node=node(), messages=tuple(told.lines))
        finally:  # this process may be given other tasks
            for folder in folders:
                release(folder)
    return Outcome(node=node(), messages=tuple(told.lines))


def evaluate_files(out: Path, mark: str, work: Sequence[tuple[Path, str]], asked: Asked, share: Share) -> Outcome:
    """Evaluate some runs, one after the other."""
    _check_shared(out, mark)
    told = _Told()
    with told.listening(), _memory(share):
        for one in work:
            evaluate_file(one, asked, share.device)
    return Outcome(node=node(), messages=tuple(told.lines))


def gpus_here() -> list[tuple[str, int]]:
    """Name and bytes of each GPU of a node, whoever uses it; nothing where the driver does not say."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        rows = [line.rpartition(",") for line in done.stdout.splitlines() if line.strip()]
        return [(name.strip(), int(mebibytes) * 2**20) for name, _, mebibytes in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


class _Told(Silent):
    """What is worth a line, kept for the one who shows it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Warnings about run folders are such lines."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", RunWarning)
            try:
                yield
            finally:
                self.lines += [str(one.message) for one in found if issubclass(one.category, RunWarning)]


def _check_shared(out: Path, mark: str) -> None:
    until = time.monotonic() + SEEN_WITHIN
    while True:
        try:
            if (out / MARK).read_text() == mark:
                return
        except (OSError, ValueError):
            pass
        if time.monotonic() > until:
            raise RunError(
                f"node {node()} does not see {format_path(out)}; --out must be a folder that all nodes share, by the "
                "same path"
            )
        time.sleep(0.5)


def _wait_until_free(folders: Sequence[Path]) -> None:
    """A worker whose node was lost ends by itself, if it runs on this machine at all; else its folder is taken."""
    until = time.monotonic() + FREE_WITHIN
    while time.monotonic() < until and any(folder.is_dir() and is_held(folder) for folder in folders):
        time.sleep(0.2)


@contextmanager
def _memory(share: Share) -> Iterator[None]:
    """No more of a GPU's memory than the share: who needs more ends, not the one beside it."""
    if share.device != "cpu" and share.memory < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share.memory)
    yield
