"""Planning: turn the arguments of `train` into runs, and check them all before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import index
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

from sdssm.errors import RunError, SettingsError, format_value
from sdssm.files import format_path
from sdssm.formatting import format_setting
from sdssm.limits import MOST_SEEDS
from sdssm.models.registry import find_entry
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs import RunFolder, default_folder, find_runs, folder_name
from sdssm.runs.comparison import differing_values
from sdssm.runs.find import unique_name
from sdssm.runs.own_files import STATUS_FILE
from sdssm.runs.plan_file import check_not_starting, missing_runs
from sdssm.runs.provenance import start_stamp
from sdssm.runs.schema import RunConfig, choose_preset, create_config, resolve_settings
from sdssm.tasks import Task, get_task
from sdssm.tasks.reach import check_labels, check_reach

if TYPE_CHECKING:
    import torch

    from sdssm.models import TokenModel

#: What `get_task` takes: a name, a `Task`, a `Machine`, a path, a table, an automaton of another library.
TaskLike = Any
#: A run to train: its folder, its task and its config.
RunPlan = tuple[Path, Task, RunConfig]
#: Settings that an error about another training names.
MOST_DIFFERENCES = 4
#: Any object that represents a run.
AnyRun = TypeVar("AnyRun")


def plan_runs(
    task: TaskLike | Sequence[TaskLike],
    *,
    model: Any,
    preset: str | None,
    seeds: int | Sequence[int],
    steps: int | None,
    out: str | Path | None,
    settings: Mapping[str, Any] | None,
    variants: Mapping[str, Mapping[str, Any]] | None,
    device: torch.device | None,
) -> tuple[Path, list[RunPlan]]:
    """Check the arguments of `train`; return the folder of all runs and the runs in it."""
    tasks = _resolve_tasks(task)
    model = find_entry(model).name  # a class or function is registered, so that it has a name
    seed_list = expand_seeds(seeds)
    if not isinstance(settings or {}, Mapping):
        raise SettingsError(f"settings must be values by name, as in {{'state': 32}}, got {format_value(settings)}")
    if steps is not None and "steps" in (settings or {}):
        raise SettingsError(f"steps is {steps}, and settings have steps too; leave one of them out")
    values = {**(settings or {}), **({} if steps is None else {"steps": steps})}
    path = _resolve_folder(out, tasks, model, preset, values)
    stamp = start_stamp()
    planned: list[RunPlan] = []
    for task in tasks:
        task_folder = path if len(tasks) == 1 else path / folder_name(unique_name(task))
        for variant, changes in _check_variants(variants).items():
            length = {**values, **changes}.get("train_length")
            chosen = choose_preset(model, task, length) if preset is None else preset
            resolved = resolve_settings(model, chosen, task, {**values, **changes})
            for seed in seed_list:
                config = create_config(task, seed, resolved, chosen, stamp)
                check_config(config, task, device)
                planned.append((task_folder / variant / f"seed-{seed}", task, config))
    return path, planned


def group_runs(runs: Iterable[AnyRun], describe: Callable[[AnyRun], tuple[RunConfig, Task]]) -> list[list[AnyRun]]:
    """Group the runs that can train side by side and were started together.

    `describe` returns the config and the task of a run.
    """
    from sdssm.training.engine import group_key

    groups: dict[Any, list[AnyRun]] = {}
    for run in runs:
        config, task = describe(run)
        groups.setdefault((group_key(config, task), config.begun), []).append(run)
    return list(groups.values())


def check_config(config: RunConfig, task: Task, device: torch.device | None = None) -> None:
    """Refuse settings that do not fit the task, the model or the device."""
    from sdssm.models import Classifier
    from sdssm.training.engine import new_model
    from sdssm.training.execution import is_in_catalogue
    from sdssm.training.trial import check_trainable

    limit = config.train.validate_length
    if limit is not None and limit > task.train_length:
        raise SettingsError(
            f"validate_length is {limit}; {task.name} is tested beyond {task.train_length}, and test lengths must "
            f"not choose weights; set at most {task.train_length}"
        )
    check_labels(task)
    _check_start_states(config, task)
    longest = task.longest_valid_length(config.train_length)
    if config.train.shortest > longest:
        raise SettingsError(
            f"shortest is {config.train.shortest}, but {task.name} is trained on strings of at most {longest}; set "
            f"shortest to at most {longest}, or a longer train_length"
        )
    # Strings that start in a random state take every transition.
    if config.model.state_embedding is None and not config.train.allow_unidentified:
        check_reach(task, config.train_length)
    _check_state_targets(config, task)
    try:
        model = new_model(config, task)  # some combinations are refused only by the model itself
    except (RuntimeError, TypeError, MemoryError) as error:
        raise SettingsError(f"a model with these settings cannot be built: {str(error).splitlines()[0]}") from None
    if model.longest is not None and config.train_length > model.longest:
        raise SettingsError(
            f"train_length is {config.train_length}, but this {config.model.name} was made for strings of at most "
            f"{model.longest}; train on shorter strings, or change its settings for longer ones"
        )
    if config.train.gain_penalty:
        _check_gain_penalty(config, model)
    if config.train.prefixes > 1:
        _check_prefixes(config, task, model)
    if not is_in_catalogue(config.model):
        check_trainable(config, model)
    if device is not None and device.type == "cuda" and isinstance(model, Classifier):
        for mixer in model.mixers:
            size, largest = mixer.transition_size, mixer.largest_transition
            if size > largest:
                raise SettingsError(
                    f"{config.model.name} has transitions of {size} x {size}, but the GPU kernels take at most "
                    f"{largest}; make them smaller, or train on the CPU"
                )


def _check_start_states(config: RunConfig, task: Task) -> None:
    """Refuse strings that start in random states where the model cannot be given them, and models that need them."""
    if config.model.state_embedding is None:
        if config.model.needs_given_state:
            raise SettingsError(
                "initial_state is 'given', but training has no initial states to give; set initial_state=learned, or "
                "state_embedding too"
            )
        return
    machine = task.machine
    if machine.outputs.tolist() != list(range(machine.n_states)):
        raise SettingsError(
            f"state_embedding needs a task whose labels are its states, and those of {task.name} are not; "
            "choose a group, such as a5"
        )
    if config.train.sampling != "uniform":
        raise SettingsError(
            f"sampling is {config.train.sampling!r}, but with state_embedding strings start in random states and are "
            "uniform; set sampling=uniform"
        )


def _check_state_targets(config: RunConfig, task: Task) -> None:
    """Refuse states as targets without centres for them, centres without such targets, and terms of the other loss."""
    centres = getattr(config.model, "centres", None)
    if config.train.targets == "label":
        if centres is not None:
            raise SettingsError(
                f"centres is {centres}, but targets is 'label', and labels have a centre each; set preset=states, or "
                "centres=none"
            )
        return
    if centres is None:
        raise SettingsError("targets is 'state', but the model has no centres for states; set preset=states")
    states = task.minimal.n_states
    if centres < states:
        raise SettingsError(
            f"centres is {centres}, but the minimal machine of {task.name} has {states} states; set centres=none, or "
            f"at least {states}"
        )
    for name in ("attraction", "gain_penalty"):
        if getattr(config.train, name):
            raise SettingsError(
                f"{name} is {getattr(config.train, name)}, but with states as targets its term is not part of the "
                f"loss; set {name}=0"
            )


def _check_prefixes(config: RunConfig, task: Task, model: TokenModel) -> None:
    """Refuse labels of prefixes where prefixes have none, or where the model does not predict them in one pass."""
    reason = None
    if config.train.targets == "state":
        reason = "with states as targets the states of two prefixes are compared"
    elif task.valid is not None:
        reason = f"not every prefix of a string of {task.name} is valid"
    elif not model.predicts_prefixes:
        reason = f"{config.model.name} with these settings does not predict all prefixes in one pass"
    if reason is not None:
        raise SettingsError(f"prefixes is {config.train.prefixes}, but {reason}; set prefixes=1")


def _check_gain_penalty(config: RunConfig, model: TokenModel) -> None:
    """Refuse a penalty on gains for a model whose gains are equal, or that has none."""
    if not getattr(model, "is_single_sd_ssm", False) or getattr(config.model.mixer, "input_matrix", False):
        raise SettingsError(
            f"gain_penalty is {config.train.gain_penalty}, but only a single SD-SSM without an input matrix has gains; "
            "set gain_penalty=0"
        )
    form = config.model.mixer.transition
    if form in ("stochastic", "sum-one") and not config.model.mixer.is_annealed:
        raise SettingsError(
            f"gain_penalty is {config.train.gain_penalty}, but with transition={form} all gains are 1; "
            "set gain_penalty=0, or transition=signed"
        )


def expand_seeds(seeds: int | Sequence[int]) -> list[int]:
    """Return the seeds as a list: 0, 1, ... if their number is given."""
    try:
        given = range(index(seeds)) if not isinstance(seeds, Iterable) else seeds
        values = [index(seed) for seed in islice(given, MOST_SEEDS + 1)]
    except TypeError:
        values = []
    if len(values) > MOST_SEEDS:
        raise SettingsError(f"seeds are {format_value(seeds)}; at most {MOST_SEEDS:,} are trained at once, give fewer")
    is_valid = all(0 <= seed < 1 << 63 for seed in values) and len(set(values)) == len(values)
    if not values or not is_valid or isinstance(seeds, bool):
        raise SettingsError(
            f"seeds are {format_value(seeds)}; give their number, or a list of different integers of at least 0"
        )
    return values


def planned_before(path: Path, planned: Sequence[RunPlan]) -> set[Path]:
    """Return the folders of these runs that a killed training had planned too, but not created."""
    missing = missing_runs(path)
    return {
        folder
        for folder, _, config in planned
        if folder.absolute() in missing and missing[folder.absolute()].matches(config)
    }


def _another_training(run: RunFolder, config: RunConfig, path: Path) -> RunError:
    """Return the error for a folder with a training that has other settings than the one to resume."""
    stored = {"task": run.config.task, "train_length": run.config.train_length, **run.config.settings.values_by_name()}
    wanted = {"task": config.task, "train_length": config.train_length, **config.settings.values_by_name()}
    different = list(dict.fromkeys([*differing_values(wanted, stored), *differing_values(stored, wanted)]))
    pairs = [(name, *(format_setting(values.get(name)) for values in (stored, wanted))) for name in different]
    listed = ", ".join(f"{name} {old}, asked {new}" for name, old, new in pairs[:MOST_DIFFERENCES])
    listed += f", and {len(pairs) - MOST_DIFFERENCES} more" if len(pairs) > MOST_DIFFERENCES else ""
    problem = f"{format_path(run.path)} was started as another training{f' ({listed})' if listed else ''}"
    if run.status in ("finished", "diverged"):
        ended = f"{problem}, which has ended and cannot be extended"
        return RunError(
            f"{ended}; train again in another folder, or replace it with overwrite=True and without resume",
            shell=f"{ended}; train again with another --out, or replace it with --overwrite in place of --resume",
        )
    return RunError(
        f"{problem}; continue it as it is with sdssm train --resume {quote(str(path))}, or start this one in another "
        "folder"
    )


def check_folders(
    path: Path, planned: Sequence[RunPlan], *, resume: bool, overwrite: bool, started: Collection[Path] = ()
) -> None:
    """Raise an error if a folder is not free and does not hold the planned run to resume.

    No folder is changed. `started` are the folders of `planned_before`, which are created as they were planned.
    """
    check_not_starting(path, [folder for folder, _, _ in planned])
    seen = dict[Path, RunConfig]()
    for folder, _, config in planned:
        if folder in seen:
            raise SettingsError(
                f"{seen[folder].task} and {config.task} would both train in {folder}; train them one after the other, "
                "each in a folder of its own"
            )
        seen[folder] = config
        for parent in folder.absolute().parents:
            if (parent / CONFIG_FILE).exists() and (parent / STATUS_FILE).exists():
                raise RunError(f"{parent} is a run itself; choose a folder outside of it")
        if folder in started:
            continue
        if resume and (folder / CONFIG_FILE).exists():
            run = RunFolder.open(folder)
            if not run.config.matches(config):
                raise _another_training(run, config, path)
        else:
            RunFolder.check_free(folder, overwrite=overwrite)
    if overwrite and path.is_dir():
        planned_settings = {config.settings for config in seen.values()}
        existing: list[RunFolder] = []
        with suppress(RunError):  # there may be none
            existing = find_runs(path)
        for run in existing:
            if run.path not in seen and run.config.settings not in planned_settings:
                raise RunError(
                    f"{path} also holds {run.path.relative_to(path)}, a run with other settings, which would be mixed "
                    "with the new ones; remove it or choose another folder"
                )


def _resolve_tasks(task: TaskLike | Sequence[TaskLike]) -> list[Task]:
    is_list = isinstance(task, Sequence) and not isinstance(task, str) and not _is_table(task)
    tasks = list(task) if is_list else [task]
    if not tasks:
        raise SettingsError("no task was given; name one, as in train('a5')")
    return [get_task(item) for item in tasks]


def _is_table(value: Sequence[Any]) -> bool:
    """Return whether a sequence is the table of a machine, rows of whole numbers, and not a list of tasks."""
    return bool(value) and all(
        isinstance(row, Sequence) and bool(row) and all(isinstance(state, int) for state in row) for row in value
    )


def _resolve_folder(
    out: str | Path | None, tasks: Sequence[Task], model: str, preset: str | None, settings: Mapping[str, Any]
) -> Path:
    if out is None:
        return default_folder(tasks, model, preset, settings)
    if str(out) in ("", "."):
        raise SettingsError("out is the current folder; name a folder for the runs, as in out='runs/a5'")
    return Path(out)


def _check_variants(variants: Mapping[str, Mapping[str, Any]] | None) -> Mapping[str, Mapping[str, Any]]:
    """Return settings by the name of a variant, which is also the name of its folder."""
    for name, changes in (variants or {}).items():
        if not isinstance(name, str) or folder_name(name) != name or not isinstance(changes, Mapping):
            raise SettingsError(
                f"a variant is {format_value(name)}: {format_value(changes)}; give settings by a name for a folder"
            )
    return variants or {"": {}}
