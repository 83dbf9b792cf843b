"""What is to be trained, and where: all that can be wrong with it, before anything is begun."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any, TypeVar

import torch

from sdssm.automata import Machine
from sdssm.errors import RunError, SettingsError, format_value
from sdssm.models.classifier import CONFIG
from sdssm.ops.backend import TRITON_LARGEST_STATE
from sdssm.runs import RunFolder, find_runs, folder_name
from sdssm.runs.folder import STATUS
from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task
from sdssm.tasks import get_task as named_task
from sdssm.training.engine import new_model, shape

TaskLike = str | Task | Machine
#: A folder, and the training that is to be in it.
Planned = tuple[Path, Task, RunConfig]
#: Whatever stands for a run.
AnyRun = TypeVar("AnyRun")


def side_by_side(runs: Iterable[AnyRun], what: Callable[[AnyRun], tuple[RunConfig, Task]]) -> list[list[AnyRun]]:
    """Runs that can share every launch, and were begun together, together; `what` each of them trains on what."""
    found: dict[Any, list[AnyRun]] = {}
    for run in runs:
        config, of = what(run)
        found.setdefault((shape(config, of), config.begun), []).append(run)
    return list(found.values())


def check_config(config: RunConfig, of: Task, device: torch.device | None = None) -> None:
    """What the settings, the task and the device can only say together."""
    limit = config.train.validate_length
    if limit is not None and limit > of.train_length:
        raise SettingsError(
            f"validate_length is {limit}; {of.name} is tested beyond {of.train_length}, and test lengths choose nothing"
        )
    if config.model.state_embedding is not None and of.machine.outputs.tolist() != list(range(of.machine.n_states)):
        raise SettingsError(f"state_embedding needs a task whose labels are its states, and those of {of.name} are not")
    if getattr(config.model.mixer, "initial_state", None) == "given" and config.model.state_embedding is None:
        raise SettingsError(
            "initial_state is 'given', and training has none to give; set initial_state=learned, or state_embedding too"
        )
    if config.train.shortest > of.floor(config.train_length):
        raise SettingsError(
            f"shortest is {config.train.shortest}; {of.name} is trained on strings of at most "
            f"{of.floor(config.train_length)}: give no more than that, or a longer train_length"
        )
    try:
        model = new_model(config)  # what only the model itself can refuse
    except (RuntimeError, TypeError, MemoryError) as error:
        raise SettingsError(f"no such model can be made: {str(error).splitlines()[0]}") from None
    if model.longest is not None and config.train_length > model.longest:
        raise SettingsError(
            f"train_length is {config.train_length}, but this {config.model.name} was made for strings of at most "
            f"{model.longest}; train on shorter ones, or make it for longer ones"
        )
    largest = max(mixer.kernel_size for mixer in model.mixers)
    if device is not None and device.type == "cuda" and largest > TRITON_LARGEST_STATE:
        raise SettingsError(
            f"{config.model.name} has transitions of {largest} x {largest}, and a GPU's kernels take at most "
            f"{TRITON_LARGEST_STATE}; make them smaller, or train with device='cpu'"
        )


def one_task(given: TaskLike) -> Task:
    if not isinstance(given, str | Task | Machine):
        raise SettingsError(f"a task is {format_value(given)}; give a name, a Task or a Machine")
    return given if isinstance(given, Task) else named_task(given)


def checked_variants(variants: Mapping[str, Mapping[str, Any]] | None) -> Mapping[str, Mapping[str, Any]]:
    """Settings by the name of a variant, which is that of a folder."""
    for name, changed in (variants or {}).items():
        if not isinstance(name, str) or folder_name(name) != name or not isinstance(changed, Mapping):
            raise SettingsError(
                f"a variant is {format_value(name)}: {format_value(changed)}; give settings by a name for a folder"
            )
    return variants or {"": {}}


def checked_seeds(seeds: int | Sequence[int]) -> list[int]:
    try:
        found = list(range(index(seeds))) if not isinstance(seeds, Iterable) else [index(seed) for seed in seeds]
    except TypeError:
        found = []
    right = all(0 <= seed < 1 << 63 for seed in found) and len(set(found)) == len(found)
    if not found or not right or isinstance(seeds, bool):
        raise SettingsError(f"seeds are {format_value(seeds)}; give how many, or different whole numbers from 0 on")
    return found


def check_folders(path: Path, planned: Sequence[Planned], *, resume: bool, overwrite: bool) -> None:
    """Every folder is for one run and free, or holds the run that is planned; else none is touched."""
    seen = dict[Path, RunConfig]()
    for into, _, config in planned:
        if into in seen:
            raise SettingsError(
                f"{seen[into].task} and {config.task} would both train in {into}; train them one after the other, each "
                "with an out= of its own"
            )
        seen[into] = config
        for above in into.absolute().parents:
            if (above / CONFIG).exists() and (above / STATUS).exists():
                raise RunError(f"{above} is a run itself; choose a folder outside of it")
        if resume and (into / CONFIG).exists():
            if not RunFolder.open(into).config.same_as(config):
                raise RunError(
                    f"{into} was begun as another training; sdssm train --resume {path} goes on with it as it is, "
                    "another out= begins this one"
                )
        else:
            RunFolder.check_free(into, overwrite=overwrite)
    if overwrite and path.is_dir():
        kept = {config.settings for config in seen.values()}
        others: list[RunFolder] = []
        with suppress(RunError):  # there may be none
            others = find_runs(path)
        for other in others:
            if other.path not in seen and other.config.settings not in kept:
                raise RunError(
                    f"{path} also holds {other.path.relative_to(path)}, a run with other settings, which would "
                    "stay beside the new ones; remove it or choose another folder"
                )
