"""`train` and `resume`: start a training, or continue the runs in a folder."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sdssm.devices import DeviceLike, resolve_devices
from sdssm.errors import RunError, SettingsError, format_value
from sdssm.extras import import_extra
from sdssm.files import format_path
from sdssm.models import DEFAULT_MODEL
from sdssm.models.building import import_recorded_model
from sdssm.models.import_paths import check_not_importing
from sdssm.models.recorded_models import use_recorded_name
from sdssm.models.registry import find_entry
from sdssm.models.sent_models import send_models
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs import FINAL_STATUSES, RunFolder, find_runs, group_by_resume_step
from sdssm.runs.claim import release_folder, reserve_open_files
from sdssm.runs.constant_answers import training_constants
from sdssm.runs.plan_file import create_missing
from sdssm.runs.repair import restore_model
from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task
from sdssm.training.execution import is_in_catalogue
from sdssm.training.group import ReplicaGroup
from sdssm.training.planning import RunPlan, TaskLike, check_folders, group_runs, plan_runs, planned_before
from sdssm.training.progress import Progress, resolve_progress
from sdssm.training.queue import TrainingQueue, resolve_at_once
from sdssm.training.rounds import train_queue
from sdssm.training.schedules import last_step
from sdssm.training.sharing import Worker, choose_workers
from sdssm.training.signals import Interrupted, StopFlag, stop_on_signal
from sdssm.training.starting import create_folders, create_planned
from sdssm.training.trained_runs import Runs
from sdssm.training.workers import WorkerPool


class TrainingStopped(Interrupted):
    """Training was stopped by a signal after every run was saved; `runs` are its run folders, `number` the signal.

    The signal is SIGINT (Ctrl-C), SIGTERM or SIGHUP (a closed terminal).
    """

    def __init__(self, runs: Runs, number: int = signal.SIGINT) -> None:
        super().__init__(f"training stopped; continue with resume({str(runs.path)!r})", number=number)
        self.runs = runs


def train(
    task: TaskLike | Sequence[TaskLike],
    *,
    model: Any = DEFAULT_MODEL,
    preset: str | None = None,
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    device: DeviceLike | Sequence[DeviceLike] = "auto",
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
    tensorboard: bool = False,
) -> Runs:
    """Train a model on short strings of one or more tasks, once per seed; return the run folders.

    task: a name, a `Task`, or whatever `sdssm.machine` takes (a path, a table, an automaton), or a list of them.
    model: a name of `sdssm models`, the import path of a model of your own, or the class or function that builds it.
    preset: named settings; by default those of the catalogue for the model.
    seeds: the number of seeds, from 0 on, or a list of them. All seeds train at once.
    steps: short for the setting of that name.
    device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1"; or several GPUs, "cuda:0,cuda:1" or a list, which
        share the groups of runs that train side by side.
    out: the folder of the runs, which are out/seed-0, ...; with several tasks out/TASK/seed-0, with variants
        out/VARIANT/seed-0, with both out/TASK/VARIANT/seed-0. By default runs/TASK, with the model,
        the preset and the settings that differ from the default, such as runs/a5-paper-state=32.
    settings: values that replace those of the preset, by name.
    variants: settings by the name of a variant; each variant is trained with all seeds.
    resume: resume the runs that are in `out` and start the missing ones.
    overwrite: replace the runs that are in `out`.
    progress: True shows what `sdssm train` shows, a table on a terminal and a line now and then elsewhere; or a display
        of one's own, see `sdssm.training.Progress`. By default there is none, and messages are warnings.
    tensorboard: also write scalars for TensorBoard into the run folders.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     runs = train("parity", seeds=2, steps=20, out=folder, settings={"state": 8, "batch": 16}, device="cpu")
    ...     [run.path.name for run in runs], runs[0].status
    (['seed-0', 'seed-1'], 'finished')
    """
    check_not_importing("a training")
    devices, progress = resolve_devices(device), resolve_progress(progress)
    if resume and overwrite:
        raise SettingsError("resume continues the runs in a folder and overwrite replaces them; leave one of them out")
    path, planned = plan_runs(
        task,
        model=model,
        preset=preset,
        seeds=seeds,
        out=out,
        settings=settings,
        steps=steps,
        variants=variants,
        device=devices[0],
    )
    return train_runs(
        path, planned, device=devices, resume=resume, overwrite=overwrite, progress=progress, tensorboard=tensorboard
    )


def train_runs(
    path: Path,
    planned: Sequence[RunPlan],
    *,
    device: DeviceLike | Sequence[DeviceLike] = "auto",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
    tensorboard: bool = False,
    at_once: int | None = None,
    until: float = 1.0,
    workers: Sequence[Worker] | None = None,
    seconds: Mapping[Path, float] | None = None,
) -> Runs:
    """Train planned runs, each in its own folder below `path`.

    Runs of one shape train in a group: side by side, or one after the other in each step if the model needs that.

    planned: folder, task and config of each run.
    resume: resume the runs that exist, if they are the planned ones, and start the others.
    at_once: the greatest number of groups that train at once, by default 16 on a GPU, fewer if its memory is too small.
        On a CPU it is one for each core, in a process of its own, or 4 in this process if the training is short. The
        others wait until one has ended.
    until: stop each run after this share of its steps, as Ctrl-C would; runs that are further are left as they are.
    workers: where the groups are trained, instead of on `device` with `at_once`.
    seconds: estimates of the time of the groups, by the folder of a run; of several devices the first to be free takes
        the group that takes longest.

    The other arguments are those of `train`.
    """
    devices, progress = resolve_devices(device), resolve_progress(progress)
    resolve_at_once(at_once, devices[0])
    if len(devices if workers is None else workers) > 1:  # no worker can import it: an error before a folder is created
        send_models(config.model for _, _, config in planned)
    if tensorboard:
        import_extra("tensorboard", "tensorboard=True")
    started = planned_before(path, planned) if resume else set[Path]()
    check_folders(path, planned, resume=resume, overwrite=overwrite, started=started)
    with stop_on_signal() as stop:
        try:
            create_missing(path, only={folder.absolute() for folder in started}, stop=stop)
            existing = {folder for folder, _, _ in planned if resume and (folder / CONFIG_FILE).exists()}
            members = [(RunFolder.open(folder), task) for folder, task, _ in planned if folder in existing]
            _restore_models([run for run, _ in members], progress)
            reserve_open_files(len(planned) - sum(run.status in FINAL_STATUSES for run, _ in members))
            missing = [plan for plan in planned if plan[0] not in existing]
            if not stop():  # otherwise the plan of the earlier training stays
                members += create_folders(path, missing, overwrite=overwrite, stop=stop)
            folders = {run.path: run for run, _ in members}
            runs = Runs(path, [folders[folder] for folder, _, _ in planned if folder in folders])
            if len(runs) < len(planned):
                raise TrainingStopped(runs, stop.number)
            groups = _unfinished_groups(members, tensorboard, until, new={folder for folder, _, _ in missing})
            return _run(runs, groups, workers or choose_workers(devices, groups, at_once), progress, stop, seconds)
        finally:
            for folder, _, _ in planned:  # another process may resume them
                release_folder(folder)


def resume(
    source: str | Path | RunFolder | Runs,
    *,
    device: DeviceLike | Sequence[DeviceLike] = "auto",
    progress: Progress | bool | None = None,
    tensorboard: bool = False,
    model: Any = None,
    trust: bool = False,
) -> Runs:
    """Resume all unfinished runs of a source from their last checkpoints, and return all runs of it.

    source: a folder of runs, a run, or what `train` returned.
    model: the model of someone else that the runs train, as `train` takes it; it is then known, as if registered.
    trust: import the code of models that are not part of this package, as the folders name it. Without it such runs
        are resumed only if their model was registered before (`sdssm.register`), is installed, or is passed.

    On a CPU the result is bit-identical to that of an uninterrupted training, for models of the catalogue and for
    modules whose state is all in parameters and persistent buffers. A training says at its start if a module keeps
    something else, such as a counter in Python. The arguments are those of `train`.
    """
    devices, progress = resolve_devices(device), resolve_progress(progress)
    if not isinstance(source, Runs | RunFolder | str | Path) or not str(source):
        raise RunError(f"{format_value(source)} holds no runs; pass their folder, a run, or what train returned")
    path = Path(source) if isinstance(source, str | Path) else source.path
    created = create_planned(path, progress.message)
    if isinstance(source, Runs | RunFolder):
        folders = [source] if isinstance(source, RunFolder) else [*source, *map(RunFolder.open, created)]
    else:
        folders = find_runs(source)
    if model is not None:
        entry = find_entry(model)
        for folder in folders:
            use_recorded_name(entry, folder.config.model.name, folder.config.model.import_path)
    folders = [_with_imported_model(folder, trust) for folder in folders]
    _restore_models(folders, progress)
    groups = _unfinished_groups([(folder, folder.config.load_task()) for folder in folders], tensorboard)
    reserve_open_files(sum(folder.status not in FINAL_STATUSES for folder in folders))
    with stop_on_signal() as stop:
        return _run(Runs(path, folders), groups, choose_workers(devices, groups), progress, stop)


def _restore_models(runs: Sequence[RunFolder], progress: Progress) -> None:
    """Restore models of finished runs that are damaged or missing from the checkpoints, with a line for each."""
    for run in runs:
        line = restore_model(run)
        if line is not None:
            progress.message(line)


def _with_imported_model(folder: RunFolder, trust: bool) -> RunFolder:
    """Import the code of a run's model, if that is allowed, and return the run with the settings of that code."""
    if folder.status in FINAL_STATUSES or is_in_catalogue(folder.config.model):
        return folder
    import_recorded_model(folder.config.to_json(), format_path(folder.path), trust=trust)
    return RunFolder.open(folder.path)


def _unfinished_groups(
    runs: Sequence[tuple[RunFolder, Task]], tensorboard: bool, until: float = 1.0, new: Collection[Path] = ()
) -> list[ReplicaGroup]:
    """Return the groups of the runs that have not ended, each to be resumed from where it stopped.

    new: the folders of runs that were just created.

    A run that diverged stays in its group, but is not trained: the others then have as many replicas side by side as
    before, and their numbers are the same to the last bit.
    """
    groups = []
    for members in group_runs(runs, _config_and_task):
        if all(folder.path in new for folder, _ in members):
            groups.append(ReplicaGroup(members, tensorboard=tensorboard, until=until))
            continue
        unfinished = [folder for folder, _ in members if folder.status in ("running", "stopped")]
        diverged = [folder for folder, _ in members if folder.status == "diverged"]
        parts = group_by_resume_step(unfinished) if unfinished else []
        for step, folders in parts:
            if until < 1 and step >= last_step(folders[0].config.train, until):
                continue
            resumed = [
                member for member in members if member[0] in (folders + diverged if len(parts) == 1 else folders)
            ]
            groups.append(ReplicaGroup(resumed, step, tensorboard=tensorboard, until=until))
    return groups


def _config_and_task(member: tuple[RunFolder, Task]) -> tuple[RunConfig, Task]:
    return member[0].config, member[1]


def _run(
    runs: Runs,
    groups: Sequence[ReplicaGroup],
    workers: Sequence[Worker],
    progress: Progress,
    stop: StopFlag,
    seconds: Mapping[Path, float] | None = None,
) -> Runs:
    """Train all groups until they are done or a signal stops them: in this process, or in one for each worker."""
    if not groups:
        return runs
    queue = TrainingQueue(groups, torch.device(workers[0].device), workers[0].at_once)
    names = [_display_name(folder.path, runs.path) for folder in queue.folders]
    progress.start(names, queue.steps, queue.step, training_constants([folder.config for folder in queue.folders]))
    try:
        queue.claim_folders()
        if unused := [worker.device for worker in workers[len(groups) :]]:
            progress.message(
                f"{', '.join(unused)} stays idle: runs that train side by side are a group, which trains on one "
                f"device, and there {'is 1 group' if len(groups) == 1 else f'are {len(groups)} groups'}"
            )
        if len(workers) == 1 or len(groups) == 1:
            train_queue(queue, progress, stop)
        else:
            WorkerPool(groups, workers, progress, stop, seconds).run()
    finally:
        progress.stop()
        for folder in runs:  # another process may resume them
            release_folder(folder.path)
    if stop():  # even if all groups are done: the caller must not start the work that would follow
        raise TrainingStopped(runs, stop.number)
    return runs


def _display_name(path: Path, parent: Path) -> str:
    """Return the name of a replica in the display: its folder, relative to the folder of all runs."""
    if path == parent:
        return path.name
    return str(path.relative_to(parent) if path.is_relative_to(parent) else path)
