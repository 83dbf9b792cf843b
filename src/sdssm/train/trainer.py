"""`train` and `resume`: from a task and settings, or from what is on disk, to run folders with trained models."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, overload

import torch

from sdssm.automata import Machine
from sdssm.devices import device_named
from sdssm.errors import SettingsError, shown
from sdssm.models import DEFAULT_PRESET
from sdssm.runs import RunFolder, find_runs, folder_name, shared_step
from sdssm.runs.schema import RunConfig, configure, resolve
from sdssm.tasks import Task
from sdssm.tasks import task as named_task
from sdssm.train.engine import shape
from sdssm.train.group import Group
from sdssm.train.progress import Progress, Silent

#: Seconds of work that a GPU is given at a time, before anybody looks.
ROUND = 1.0
#: Seconds within which signals are one: a shell or `timeout` may send it to the process and to its group.
AGAIN = 0.5

TaskLike = str | Task | Machine


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


class TrainingStopped(KeyboardInterrupt):
    """Ctrl-C, after every run was saved; `runs` are where it stopped."""

    def __init__(self, runs: Runs) -> None:
        super().__init__(f"training stopped; resume({str(runs.path)!r}) goes on")
        self.runs = runs


def train(
    task: TaskLike | Sequence[TaskLike],
    *,
    model: str = "sd-ssm",
    preset: str = DEFAULT_PRESET,
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

    The folders are out/seed-0, ...; with several tasks or `variants` (settings by the name of a variant) a folder for
    each of them stands in between. `resume` goes on with what is in `out`, `overwrite` starts anew there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     runs = train("parity", seeds=2, steps=20, out=folder, settings={"state": 8, "batch": 16}, device="cpu")
    ...     [run.path.name for run in runs], runs[0].status
    (['seed-0', 'seed-1'], 'finished')
    """
    where = device_named(device)
    tasks = [_task(one) for one in (task if isinstance(task, Sequence) and not isinstance(task, str) else [task])]
    if not tasks:
        raise SettingsError("no task was given; name one, as in train('a5')")
    if resume and overwrite:
        raise SettingsError("resume goes on and overwrite starts anew; leave one of them out")
    path = Path(out) if out is not None else Path("runs") / "+".join(folder_name(one.name) for one in tasks)
    if resume and path.is_dir() and any(path.iterdir()):
        return resume_runs(path, device=where, progress=progress, tensorboard=tensorboard)
    numbers = _seeds(seeds)
    values = {**(settings or {}), **({} if steps is None else {"steps": steps})}
    planned: list[tuple[Path, Task, RunConfig]] = []
    for one in tasks:
        below = path if len(tasks) == 1 else path / folder_name(one.name)
        for name, changed in (variants or {"": {}}).items():
            resolved = resolve(model, preset, one.name, {**values, **changed})
            for seed in numbers:
                config = configure(one, seed, resolved, preset)
                _check(config, one)
                planned.append((below / name / f"seed-{seed}", one, config))
    return train_all(path, planned, device=where, overwrite=overwrite, progress=progress, tensorboard=tensorboard)


def train_all(
    path: Path,
    planned: Sequence[tuple[Path, Task, RunConfig]],
    *,
    device: str | torch.device = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
    tensorboard: bool = False,
) -> Runs:
    """Train whatever is planned, each in its own folder below `path`; what has one shape shares every launch."""
    where = device_named(device)
    for into, _, _ in planned:  # all are free, or none is touched
        RunFolder.check_free(into, overwrite=overwrite)
    folders = [(RunFolder.create(into, config, overwrite=overwrite), of) for into, of, config in planned]
    groups = [Group(of, members, where, tensorboard=tensorboard) for of, members in _grouped(folders)]
    for group in groups:
        group.save()  # a run killed in its first minute can be resumed too
    return _train(Runs(path, [folder for folder, _ in folders]), groups, progress or Silent())


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
    groups = []
    for one, members in _grouped([(folder, folder.config.known_task()) for folder in found]):
        if all(folder.status in ("finished", "diverged") for folder in members):
            continue
        group = Group(one, members, where, tensorboard=tensorboard)
        alive = [folder for folder in members if folder.status != "diverged"]
        group.restore(shared_step(alive))
        groups.append(group)
    return _train(Runs(Path(path), found), groups, progress or Silent())


def _train(runs: Runs, groups: Sequence[Group], progress: Progress) -> Runs:
    """Rounds of steps for all groups at once, until every one is done or somebody stops it."""
    if not groups:
        return runs
    progress.start(_names(runs, groups), max(group.steps for group in groups), min(g.engine.step for g in groups))
    windows, stopped = 1, False
    try:
        with _stop_on_signal() as stop:
            while (going := [group for group in groups if not group.done]) and not stop():
                began = monotonic()
                for group in going:  # a GPU works on all of them at once
                    group.advance(windows, stop)
                for group in going:
                    group.report(progress.message)
                    group.validate()
                    group.save_if_due()
                _show(progress, groups)
                took = monotonic() - began
                if going[0].engine.device.type == "cuda":
                    windows = max(1, min(2 * windows, int(windows * ROUND / max(took, 1e-3))))
            stopped = any(not group.done for group in groups)
        for group in groups:
            group.save()
            group.end(stopped=not group.done)
    finally:
        progress.stop()
    if stopped:
        raise TrainingStopped(runs)
    return runs


def _show(progress: Progress, groups: Sequence[Group]) -> None:
    seen = [group.latest for group in groups]
    if all(window is not None for window in seen):
        known = [window for window in seen if window is not None]
        columns = [
            [value for window in known for value in getattr(window, name).tolist()]
            for name in ("loss", "accuracy", "alive")
        ]
        progress.update(min(group.engine.step for group in groups), *columns)


def _names(runs: Runs, groups: Sequence[Group]) -> list[str]:
    """What the display calls each replica: its folder, seen from the folder of all."""
    folders = [folder.path for group in groups for folder in group.folders]
    return [str(path.relative_to(runs.path)) if path != runs.path else path.name for path in folders]


@contextmanager
def _stop_on_signal() -> Iterator[Any]:
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


def _grouped(folders: Sequence[tuple[RunFolder, Task]]) -> list[tuple[Task, list[RunFolder]]]:
    """Runs that can share every launch: one task, one shape, one number of steps."""
    found: dict[Any, tuple[Task, list[RunFolder]]] = {}
    for folder, one in folders:
        found.setdefault(shape(folder.config), (one, []))[1].append(folder)
    return list(found.values())


def _check(config: RunConfig, of: Task) -> None:
    """What the settings and the task can only say together."""
    limit = config.train.validate_length
    if limit is not None and limit > of.train_length:
        raise SettingsError(
            f"validate_length is {limit}; {of.name} is tested beyond {of.train_length}, and test lengths choose nothing"
        )
    if config.model.state_embedding is not None and of.n_classes != of.machine.n_states:
        raise SettingsError(
            f"state_embedding needs a task whose labels are its states; {of.name} has {of.machine.n_states} states "
            f"and {of.n_classes} labels"
        )
    of.floor(config.train_length)


def _task(given: TaskLike) -> Task:
    return given if isinstance(given, Task) else named_task(given)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    found = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not found or len(set(found)) != len(found) or not all(isinstance(s, int) and 0 <= s < 1 << 63 for s in found):
        raise SettingsError(f"seeds are {shown(seeds)}; give how many, or different whole numbers from 0 on")
    return found
