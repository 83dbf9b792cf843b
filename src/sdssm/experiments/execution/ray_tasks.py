"""The functions that Ray workers execute: train a group of runs, or evaluate runs."""

from __future__ import annotations

import json
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
from sdssm.evaluation.prepared import MOST_MODELS
from sdssm.experiments.execution.evaluation_files import EvaluationFile
from sdssm.experiments.execution.evaluations import evaluate_group, group_files
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.files import format_path
from sdssm.models.sent_models import SentModel, import_sent_models
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs import RunFolder
from sdssm.runs.claim import is_held, release_folder, reserve_open_files
from sdssm.runs.own_files import CHECKPOINTS
from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task
from sdssm.training.planning import RunPlan
from sdssm.training.progress import SilentProgress
from sdssm.training.queue import DeviceMemoryError
from sdssm.training.trainer import TrainingStopped, train_runs

#: A file with a random token, by which a worker checks that it sees the same folder as the driver.
MARK = ".cluster"
#: Seconds that a worker waits for the mark: on a network file system it may appear late.
SEEN_WITHIN = 15.0
#: Seconds that a worker waits for a previous worker on the same machine to release the run folders.
FREE_WITHIN = 60.0


#: A run to train, with its config as JSON: the classes of its settings may be those of a model of others.
SentRun = tuple[Path, Task, str]


@dataclass(frozen=True, kw_only=True)
class DeviceShare:
    """The device of a worker, and the share of its memory that the worker may use."""

    device: str
    memory: float = 1.0


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """How a task ended without an error.

    `ended` is done, stopped (by a signal) or memory (its share of a GPU was too small).
    """

    ended: str = "done"
    node: str = ""
    messages: tuple[str, ...] = ()


def make_mark(out: Path) -> str:
    """Return the token in the mark file of a folder; create the file if it is missing."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / MARK).exists():
            (out / MARK).write_text(secrets.token_hex(16))
        return (out / MARK).read_text()
    except (OSError, ValueError) as error:
        raise RunError(f"cannot write {format_path(out / MARK)}: {error}; choose another --out") from None


def train_sent_group(
    models: Sequence[SentModel],
    out: Path,
    mark: str,
    sent: Sequence[SentRun],
    until: float,
    share: DeviceShare,
    is_retry: bool,
) -> TaskOutcome:
    """Import models of others, and then `train_group`."""
    import_sent_models(models)
    planned = [(folder, task, RunConfig.from_json(json.loads(config))) for folder, task, config in sent]
    return train_group(out, mark, planned, until, share, is_retry)


def train_group(
    out: Path, mark: str, planned: Sequence[RunPlan], until: float, share: DeviceShare, is_retry: bool
) -> TaskOutcome:
    """Train runs of one shape side by side, from their last checkpoint up to a share of their steps.

    `is_retry` says that another worker had the group before, and may still hold its folders.
    """
    check_shared(out, mark)
    resolve_device(share.device)  # raises before a folder is created
    log = _MessageLog()
    folders = [folder for folder, _, _ in planned]
    reserve_open_files(len(folders))
    with log.recording_warnings():
        try:
            with _memory_limit(share):
                if is_retry:
                    _wait_until_free(folders)
                    _wait_until_readable(folders)
                for folder, _, config in planned:
                    # A lost worker may have created only some of the folders: the group starts with all of them.
                    if not (folder / CONFIG_FILE).exists():
                        RunFolder.create(folder, config)
                train_runs(out, planned, device=share.device, resume=True, progress=log, until=until)
        except TrainingStopped:
            return TaskOutcome(ended="stopped", node=node(), messages=tuple(log.lines))
        except DeviceMemoryError:
            return TaskOutcome(ended="memory", node=node(), messages=tuple(log.lines))
        finally:  # this process may get other tasks
            for folder in folders:
                release_folder(folder)
    return TaskOutcome(node=node(), messages=tuple(log.lines))


def evaluate_files(
    models: Sequence[SentModel],
    out: Path,
    mark: str,
    files: Sequence[EvaluationFile],
    spec: EvaluationSpec,
    share: DeviceShare,
) -> TaskOutcome:
    """Import models of others, and compute and write several evaluation files, runs of one task side by side."""
    import_sent_models(models)
    check_shared(out, mark)
    log = _MessageLog()
    with log.recording_warnings(), _memory_limit(share):
        for group in group_files(files, MOST_MODELS[resolve_device(share.device).type]):
            evaluate_group(group, spec, share.device)
    return TaskOutcome(node=node(), messages=tuple(log.lines))


def list_gpus() -> list[tuple[str, int]]:
    """Return name and bytes of memory of each GPU of this node; empty if the driver does not answer."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603  # fixed
        rows = [line.rpartition(",") for line in result.stdout.splitlines() if line.strip()]
        return [(name.strip(), int(mebibytes) * 2**20) for name, _, mebibytes in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


class _MessageLog(SilentProgress):
    """A progress display that only collects messages, for the driver to print."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def recording_warnings(self) -> Iterator[None]:
        """Collect warnings about run folders as messages."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RunWarning)
            try:
                yield
            finally:
                self.lines += [str(entry.message) for entry in caught if issubclass(entry.category, RunWarning)]


def check_shared(out: Path, mark: str) -> None:
    """Raise an error if this node does not see the folder of the driver."""
    deadline = time.monotonic() + SEEN_WITHIN
    while True:
        try:
            if (out / MARK).read_text() == mark:
                return
        except (OSError, ValueError):
            pass
        if time.monotonic() > deadline:
            raise RunError(
                f"node {node()} does not see {format_path(out)}; --out must be a folder that all nodes share, by the "
                "same path"
            )
        time.sleep(0.5)


def _wait_until_free(folders: Sequence[Path]) -> None:
    """Wait for a lost worker on this machine to end; after the deadline its folders are taken over."""
    deadline = time.monotonic() + FREE_WITHIN
    while time.monotonic() < deadline and any(folder.is_dir() and is_held(folder) for folder in folders):
        time.sleep(0.2)


def _wait_until_readable(folders: Sequence[Path]) -> None:
    """Wait until this node sees the checkpoints of a lost worker: on a network file system a listing may be old.

    After the deadline the checkpoints that can be read are used.
    """
    deadline = time.monotonic() + SEEN_WITHIN
    while time.monotonic() < deadline and any(_lists_removed_files(folder / CHECKPOINTS) for folder in folders):
        time.sleep(0.2)


def _lists_removed_files(folder: Path) -> bool:
    """Return whether the listing of a folder names files that do not exist."""
    try:
        return not all(path.exists() for path in folder.iterdir())
    except OSError:  # there is no such folder yet
        return False


@contextmanager
def _memory_limit(share: DeviceShare) -> Iterator[None]:
    """Limit this process to its share of GPU memory, so that no other process on the GPU fails."""
    if share.device != "cpu" and share.memory < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share.memory)
    yield
