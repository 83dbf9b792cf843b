"""`train` and `resume`: from a task and settings, or from what is on disk, to run folders with trained models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, overload

import torch

from sdssm.devices import resolve_device
from sdssm.errors import RunWarning, SettingsError, format_value
from sdssm.extras import import_extra
from sdssm.models import DEFAULT_MODEL, default_preset
from sdssm.models.classifier import CONFIG
from sdssm.runs import ENDED, RunFolder, by_step, default_folder, find_runs, folder_name
from sdssm.runs.claim import make_room, release
from sdssm.runs.schema import RunConfig, begun_now, configure, resolve
from sdssm.tasks import Task
from sdssm.training.failures import Failures
from sdssm.training.group import last_step
from sdssm.training.memory import keep_freed_memory
from sdssm.training.planning import (
    Planned,
    TaskLike,
    check_config,
    check_folders,
    checked_seeds,
    checked_variants,
    one_task,
    side_by_side,
)
from sdssm.training.progress import Progress, Silent
from sdssm.training.queue import Entry, Queue, checked, no_room
from sdssm.training.signals import stop_on_signal

#: Seconds of work that a GPU is given at a time, before anybody looks.
ROUND = 1.0


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
    where = resolve_device(device)
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
        raise SettingsError(f"settings are {format_value(settings)}; give values by name, as in {{'state': 32}}")
    values = {**(settings or {}), **({} if steps is None else {"steps": steps})}
    begun = begun_now()
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
    where = resolve_device(device)
    checked(at_once, where)
    if tensorboard:
        import_extra("tensorboard", "tensorboard=True")
    check_folders(path, planned, resume=resume, overwrite=overwrite)
    there = {into for into, _, _ in planned if resume and (into / CONFIG).exists()}
    old = [(RunFolder.open(into), of) for into, of, _ in planned if into in there]
    make_room(len(planned) - sum(folder.status in ENDED for folder, _ in old))
    new = [
        (RunFolder.create(into, config, overwrite=overwrite), of) for into, of, config in planned if into not in there
    ]
    entries = _resumed(old, tensorboard, until)
    entries += [Entry(members, tensorboard=tensorboard, until=until) for members in side_by_side(new, _what)]
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
    where = resolve_device(device)
    found = find_runs(path)
    entries = _resumed([(folder, folder.config.known_task()) for folder in found], tensorboard)
    make_room(sum(folder.status not in ENDED for folder in found))
    return _train(Runs(Path(path), found), Queue(entries, where), progress or Warned())


def _resumed(folders: Sequence[tuple[RunFolder, Task]], tensorboard: bool, until: float = 1.0) -> list[Entry]:
    """Groups of the runs that have not ended, each where it stopped. One that diverged stays in its group, dead: so
    the others have as many beside them as before, and their numbers are the same to the last bit."""
    entries = []
    tasks = {folder.path: of for folder, of in folders}
    for members in side_by_side(folders, _what):
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


def _what(member: tuple[RunFolder, Task]) -> tuple[RunConfig, Task]:
    return member[0].config, member[1]


def _train(runs: Runs, queue: Queue, progress: Progress) -> Runs:
    """Rounds of steps for all groups that have a place, until every one is done or somebody stops it.

    Whatever fails, of whichever group, all are saved first.
    """
    if not queue.entries:
        return runs
    progress.start(_names(runs, queue), queue.steps, queue.step)
    if queue.device.type == "cpu":
        keep_freed_memory()
    windows = 1
    try:
        queue.hold()
        with stop_on_signal() as stop:
            try:
                while not queue.done and not stop():
                    began = monotonic()
                    queue.fill()
                    _round(queue, windows, stop, progress)
                    took = monotonic() - began
                    if queue.device.type == "cuda":
                        windows = max(1, min(2 * windows, int(windows * ROUND / max(took, 1e-3))))
            except Exception:
                with suppress(Exception):  # what was first is told
                    queue.end()
                raise
        queue.end()
    except torch.OutOfMemoryError as error:
        raise no_room(queue.device) from error
    finally:
        progress.stop()
        for folder in runs:  # whatever ended it, another process may go on
            release(folder.path)
    if stop():  # though all may be done: what would come next is not wanted either
        raise TrainingStopped(runs)
    return runs


def _round(queue: Queue, windows: int, stop: Callable[[], bool], progress: Progress) -> None:
    """Some steps of every group that trains, and what follows from them. What fails in one group does so after the
    others have come to the end of their round: there they can be saved."""
    failures = Failures()
    going = [group for group in queue.training if not group.done]
    turns = [group.advance(windows, stop) for group in going]
    while turns:  # a GPU works on all of them at once
        left = []
        for turn in turns:
            with failures:
                left += [turn] if next(turn, True) is None else []
        turns = left
    for group in going:
        if group.whole:
            for follow in (partial(group.report, progress.message), group.validate, group.save_if_due):
                with failures:
                    follow()
    failures.tell()
    queue.show(progress)
    queue.end_done()


def _names(runs: Runs, queue: Queue) -> list[str]:
    """What the display calls each replica: its folder, seen from the folder of all where it lies below."""
    return [_name(folder.path, runs.path) for folder in queue.folders]


def _name(path: Path, above: Path) -> str:
    if path == above:
        return path.name
    return str(path.relative_to(above) if path.is_relative_to(above) else path)
