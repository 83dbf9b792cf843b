"""`train` and `resume`: from a task and settings, or from what is on disk, to run folders with trained models."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, overload

import torch

from sdssm.devices import device_named
from sdssm.errors import RunWarning, SdssmError, SettingsError, shown
from sdssm.extras import require
from sdssm.models import DEFAULT_MODEL, default_preset
from sdssm.models.classifier import CONFIG
from sdssm.runs import RunFolder, by_step, default_folder, find_runs, folder_name
from sdssm.runs.claim import release
from sdssm.runs.schema import configure, resolve
from sdssm.tasks import Task
from sdssm.train.engine import shape
from sdssm.train.group import last_step
from sdssm.train.planning import (
    Planned,
    TaskLike,
    check_config,
    check_folders,
    checked_seeds,
    checked_variants,
    one_task,
)
from sdssm.train.progress import Progress, Silent
from sdssm.train.queue import Entry, Queue, checked

#: Seconds of work that a GPU is given at a time, before anybody looks.
ROUND = 1.0
#: Seconds within which signals are one: a shell or `timeout` may send it to the process and to its group.
AGAIN = 0.5


class Runs(Sequence[RunFolder]):
    """The run folders of one training, in order, and the folder they are in."""

    def __init__(self, path: Path, folders: Iterable[RunFolder]) -> None:
        self.path = path
        self._folders = tuple(folders)

    @overload
    def __getitem__(self, index: int) -> RunFolder: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunFolder]: ...
    def __getitem__(self, index: int | slice) -> RunFolder | Sequence[RunFolder]:
        return self._folders[index]

    def __len__(self) -> int:
        return len(self._folders)

    def __repr__(self) -> str:
        return f"Runs({str(self.path)!r}, {len(self)} runs)"


class Warned(Silent):
    """Without a display, what is worth a line is a warning."""

    def message(self, text: str) -> None:
        warnings.warn(text, RunWarning, stacklevel=2)


class TrainingStopped(KeyboardInterrupt):
    """Ctrl-C, after every run was saved; `runs` are where it stopped."""

    def __init__(self, runs: Runs) -> None:
        super().__init__(f"training stopped; resume({str(runs.path)!r}) goes on")
        self.runs = runs


def train(
    task: TaskLike | Sequence[TaskLike],
    *,
    model: str = DEFAULT_MODEL,
    preset: str | None = None,
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    device: str | torch.device = "auto",
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    tensorboard: bool = False,
) -> Runs:
    """Train a model on short strings of a task, once for each seed, side by side; each in a folder of its own.

    `preset` names settings, by default those of the catalogue for the model; `settings` changes some of them.
    The folders are out/seed-0, ...; with several tasks or `variants` (settings by the name of a variant) a folder for
    each of them stands in between. `resume` goes on with what is in `out`, `overwrite` starts anew there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     runs = train("parity", seeds=2, steps=20, out=folder, settings={"state": 8, "batch": 16}, device="cpu")
    ...     [run.path.name for run in runs], runs[0].status
    (['seed-0', 'seed-1'], 'finished')
    """
    where = device_named(device)
    tasks = [one_task(one) for one in (task if isinstance(task, Sequence) and not isinstance(task, str) else [task])]
    if not tasks:
        raise SettingsError("no task was given; name one, as in train('a5')")
    if resume and overwrite:
        raise SettingsError("resume goes on and overwrite starts anew; leave one of them out")
    path = Path(out) if out is not None else default_folder([one.name for one in tasks], model)
    if out is not None and str(out) in ("", "."):
        raise SettingsError("out is the current folder; name one for the runs, as in out='runs/a5'")
    numbers = checked_seeds(seeds)
    if not isinstance(settings or {}, Mapping):
        raise SettingsError(f"settings are {shown(settings)}; give values by name, as in {{'state': 32}}")
    values = {**(settings or {}), **({} if steps is None else {"steps": steps})}
    begun = f"{datetime.now(UTC).isoformat(timespec='seconds')} process {os.getpid()}"
    named = default_preset(model) if preset is None else preset
    planned: list[Planned] = []
    for one in tasks:
        below = path if len(tasks) == 1 else path / folder_name(one.name)
        for name, changed in checked_variants(variants).items():
            resolved = resolve(model, named, one.name, {**values, **changed})
            for seed in numbers:
                config = configure(one, seed, resolved, named, begun)
                check_config(config, one, where)
                planned.append((below / name / f"seed-{seed}", one, config))
    return train_all(
        path, planned, device=where, resume=resume, overwrite=overwrite, progress=progress, tensorboard=tensorboard
    )


def train_all(
    path: Path,
    planned: Sequence[Planned],
    *,
    device: str | torch.device = "auto",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    tensorboard: bool = False,
    at_once: int | None = None,
    until: float = 1.0,
) -> Runs:
    """Train whatever is planned, each in its own folder below `path`; what has one shape shares every launch.

    With `resume`, runs that are there go on, if they are the ones planned, and the others begin. `at_once` is how many
    groups of one shape train at once, by default 16 on a GPU, if its memory has room for them, and 4 on a CPU; the
    others wait until one is done. `until` stops each after that share of its steps, as if by Ctrl-C; those that are
    further stay where they are.
    """
    where = device_named(device)
    checked(at_once, where)
    if tensorboard:
        require("tensorboard", "tensorboard=True")
    check_folders(path, planned, resume=resume, overwrite=overwrite)
    there = {into for into, _, _ in planned if resume and (into / CONFIG).exists()}
    old = [(RunFolder.open(into), of) for into, of, _ in planned if into in there]
    new = [
        (RunFolder.create(into, config, overwrite=overwrite), of) for into, of, config in planned if into not in there
    ]
    entries = _resumed(old, tensorboard, until)
    entries += [Entry(members, tensorboard=tensorboard, until=until) for members in _grouped(new)]
    folders = {folder.path: folder for folder, _ in (*old, *new)}
    runs = Runs(path, [folders[into] for into, _, _ in planned])
    return _train(runs, Queue(entries, where, at_once), progress or Warned())


def resume_runs(
    path: str | Path,
    *,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
    tensorboard: bool = False,
) -> Runs:
    """Go on with the unfinished runs in a folder from their last checkpoints, as if they had never stopped."""
    where = device_named(device)
    found = find_runs(path)
    entries = _resumed([(folder, folder.config.known_task()) for folder in found], tensorboard)
    return _train(Runs(Path(path), found), Queue(entries, where), progress or Warned())


def _resumed(folders: Sequence[tuple[RunFolder, Task]], tensorboard: bool, until: float = 1.0) -> list[Entry]:
    """Groups of the runs that have not ended, each where it stopped. One that diverged stays in its group, dead: so
    the others have as many beside them as before, and their numbers are the same to the last bit."""
    entries = []
    tasks = {folder.path: of for folder, of in folders}
    for members in _grouped(folders):
        unfinished = [folder for folder, _ in members if folder.status in ("running", "stopped")]
        dead = [folder for folder, _ in members if folder.status == "diverged"]
        parts = by_step(unfinished) if unfinished else []
        for step, some in parts:
            if until < 1 and step >= last_step(some[0].config.train, until):
                continue  # far enough
            together = [folder for folder, _ in members if folder in some or (len(parts) == 1 and folder in dead)]
            members_now = [(f, tasks[f.path]) for f in together]
            entries.append(Entry(members_now, step, tensorboard=tensorboard, until=until))
    return entries


def _train(runs: Runs, queue: Queue, progress: Progress) -> Runs:
    """Rounds of steps for all groups that have a place, until every one is done or somebody stops it."""
    if not queue.entries:
        return runs
    progress.start(_names(runs, queue), queue.steps, queue.step)
    windows, failed = 1, None
    try:
        queue.hold()
        with stop_on_signal() as stop:
            while not queue.done and not stop():
                began = monotonic()
                try:
                    queue.fill()
                except SdssmError as error:  # of one that waited: what trains beside it is saved first
                    failed = error
                    break
                going = [group for group in queue.training if not group.done]
                turns = [group.advance(windows, stop) for group in going]
                while turns:  # a GPU works on all of them at once
                    turns = [turn for turn in turns if next(turn, True) is None]
                for group in going:
                    group.report(progress.message)
                    group.validate()
                    group.save_if_due()
                queue.show(progress)
                queue.end_done()
                took = monotonic() - began
                if queue.device.type == "cuda":
                    windows = max(1, min(2 * windows, int(windows * ROUND / max(took, 1e-3))))
        queue.end()
    finally:
        progress.stop()
        for folder in runs:  # whatever ended it, another process may go on
            release(folder.path)
    if failed is not None:
        raise failed
    if not queue.done:
        raise TrainingStopped(runs)
    return runs


def _names(runs: Runs, queue: Queue) -> list[str]:
    """What the display calls each replica: its folder, seen from the folder of all."""
    folders = [folder.path for folder in queue.folders]
    return [str(path.relative_to(runs.path)) if path != runs.path else path.name for path in folders]


@contextmanager
def stop_on_signal() -> Iterator[Any]:
    """Whether Ctrl-C (or SIGTERM) came; another one later no longer waits. Only the main thread can listen."""
    asked, when = threading.Event(), [0.0]
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def first(*_: object) -> None:
        if asked.is_set() and monotonic() - when[0] > AGAIN:
            raise KeyboardInterrupt
        if not asked.is_set():
            when[0] = monotonic()
        asked.set()

    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- who trains beside whom --------------------------------------------------------------------------------------------


def _grouped(folders: Sequence[tuple[RunFolder, Task]]) -> list[list[tuple[RunFolder, Task]]]:
    """Runs that can share every launch, and were begun together, together."""
    found: dict[Any, list[tuple[RunFolder, Task]]] = {}
    for folder, of in folders:
        found.setdefault((shape(folder.config, of), folder.config.begun), []).append((folder, of))
    return list(found.values())
