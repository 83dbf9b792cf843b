"""The command that repeats a run. It needs no torch, and imports no code that a run folder names."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdssm.automata.formats import FORMATS
from sdssm.errors import SdssmError
from sdssm.layers.settings import is_catalogue_model
from sdssm.models.catalogue import default_preset
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.presets import MIXER_DEFAULTS, MODULE_DEFAULTS
from sdssm.models.registry import plugin_paths
from sdssm.runs.comparison import differing_values, known_model_name
from sdssm.runs.schema import RunConfig, Settings, create_config, resolve_settings
from sdssm.tasks import Task
from sdssm.tasks.library import get_library_task

#: The file for a machine that was passed to `train` as an object.
MACHINE_FILE = "machine.json"
#: Words that the command line does not take as they are: it reads them as values or numbers.
NOT_WORDS = ("true", "false", "none", "null", "nan", "inf", "infinity")


def repeat_command(config: RunConfig) -> str:
    """Return the shell command that trains a run again, with the settings that differ from its preset.

    A comment at its end says what the command alone does not: a file with a machine, or code, that must be there.

    >>> from sdssm.tasks import get_task
    >>> settings = resolve_settings("lstm", "default", get_task("parity"), {"steps": 500, "lr": 1e-4})
    >>> repeat_command(create_config(get_task("parity"), 7, settings, "default"))
    'sdssm train parity --model lstm --preset default --seeds 7, --steps 500 --set lr=0.0001'
    """
    task_argument, task_note = _name_task(config)
    model_argument, model_note = _name_model(config)
    preset, values = _changed_values(config)
    if config.train.train_length is None and config.train_length != _default_length(config):
        values["train_length"] = config.train_length  # the task was passed as an object, with a length of its own
    words = ["sdssm", "train", task_argument, "--model", model_argument, "--preset", preset]
    words += ["--seeds", f"{config.seed},"]  # with a comma it is a list of seeds, and without one their number
    if "steps" in values:
        words += ["--steps", str(values.pop("steps"))]
    if values:
        words += ["--set", *(f"{name}={_format_value(value)}" for name, value in values.items())]
    notes = [note for note in (task_note, model_note) if note is not None]
    return shlex.join(words) + (f"  # {'; '.join(notes)}" if notes else "")


def _name_task(config: RunConfig) -> tuple[str, str | None]:
    """Return the task as a command names it, and a note if the name alone does not define it."""
    if config.machines is None:
        return config.task, None
    is_file = Path(config.task).suffix in FORMATS and config.task.isprintable()
    file = config.task if is_file else MACHINE_FILE
    if config.machines[1] is not None:
        note = "not all strings of this task are valid, which no file says: use config.load_task() of the run in Python"
        return file, note
    note = f"{file} must hold the machine of the run"
    return file, f"{note}: sdssm.automata.write_machine(run.config.load_task().machine, FILE) writes it"


def _name_model(config: RunConfig) -> tuple[str, str | None]:
    """Return the model as a command names it, and a note if it was defined where no command finds it."""
    model = config.model
    if is_catalogue_model(model.name, model.import_path):
        return model.name, None
    if model.import_path is None:
        note = "the model was passed as an object of Python; name it by an import path, such as my_model:Gru"
        return model.name, note
    return model.name if plugin_paths().get(model.name) == model.import_path else model.import_path, None


def _changed_values(config: RunConfig) -> tuple[str, dict[str, Any]]:
    """Return the preset, and the settings that differ from it for the task of the run.

    Some settings follow from others unless they are given, such as the size of the state from the targets. So settings
    are added until the command leads to those of the run.
    """
    task, actual = _find_task(config), config.settings.values_by_name()
    model = known_model_name(config.model)
    if model is None:
        return config.preset, _values_of_unknown_model(config, task)
    for preset in dict.fromkeys((config.preset, default_preset(config.model.name))):
        changed: dict[str, Any] = {}
        try:
            while True:
                missing = differing_values(actual, _resolve(config, model, preset, task, changed))
                if missing.keys() <= changed.keys():
                    break
                changed |= missing
        except SdssmError:  # this version does not have the preset for this task
            continue
        return preset, changed
    return config.preset, actual


def _find_task(config: RunConfig) -> Task | None:
    """Return the task of the run; None if its name now means another one, or none."""
    try:
        return config.load_task()
    except SdssmError:
        return None


def _default_length(config: RunConfig) -> int | None:
    """Return the training length of the task that the command names; None if it is unknown."""
    if config.machines is not None:
        return Task.train_length  # of a machine that is read from a file
    try:
        return get_library_task(config.task).train_length
    except SdssmError:
        return None


def _resolve(
    config: RunConfig, model: str, preset: str, task: Task | None, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings, by name, that `sdssm train` resolves these values to."""
    settings = resolve_settings(model, preset, config.task if task is None else task, values)
    return _record(config, settings, task)


def _record(config: RunConfig, settings: Settings, task: Task | None) -> dict[str, Any]:
    """Return the settings by name, as the config of a new run records them."""
    recorded = settings if task is None else create_config(task, config.seed, settings, config.preset).settings
    return recorded.values_by_name()


def _values_of_unknown_model(config: RunConfig, task: Task | None) -> dict[str, Any]:
    """Return the settings of training that were changed, and all of the model: the defaults of its code are unknown."""
    settings = config.settings
    defaults = MODULE_DEFAULTS if isinstance(settings.model, ModuleSettings) else MIXER_DEFAULTS
    of_training = {name: value for name, value in defaults.items() if hasattr(settings.train, name)}
    base = Settings(model=settings.model).replace_values(of_training)
    own = {name: value for name, value in settings.values_by_name().items() if not hasattr(settings.train, name)}
    return own | differing_values(settings.values_by_name(), _record(config, base, task))


def _format_value(value: Any) -> str:
    """Return a value as `--set` takes it.

    >>> [_format_value(value) for value in (1e-4, True, None, (0.9, 0.99), "cosine", "5", "none")]
    ['0.0001', 'true', 'none', '[0.9, 0.99]', 'cosine', '"5"', 'none']
    """
    if value is None:
        return "none"
    is_word = isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w.-]*", value) and value.lower() not in NOT_WORDS
    # For a setting that is a word, the command line reads none as that word.
    return value if is_word or value == "none" else json.dumps(value)
