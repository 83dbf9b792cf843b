"""How a record describes a run: canonical task name, and settings changed from its preset.

Two runs with the same description differ in nothing but their seeds, and may be averaged.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from sdssm.errors import SdssmError
from sdssm.layers.settings import is_catalogue_model
from sdssm.models.registry import registered_entry
from sdssm.models.settings import unchanged_settings
from sdssm.runs.events import to_json_value
from sdssm.runs.schema import Settings, resolve_settings
from sdssm.tasks import Task
from sdssm.tasks.library import get_library_task

#: Settings without influence on what is learned, and train_length, which has its own field in a record.
NOT_COMPARED = ("checkpoint_every", "log_every", "train_length")


def changed_settings(settings: Settings, preset: str | None, task: str) -> dict[str, Any]:
    """Return the settings that differ from the preset for the task.

    If preset is None, they are compared with the defaults.

    >>> changed_settings(resolve_settings("sd-ssm", "paper", "a5", {"lr": 0.01}), "paper", "a5")
    {'lr': 0.01}
    """
    base = Settings(model=unchanged_settings(settings.model))
    name = settings.model.name
    entry = registered_entry(name, settings.model.import_path)
    # A name that a folder records is not looked up unless it is known: that might import code.
    is_known = entry is not None or is_catalogue_model(name, settings.model.import_path)
    if preset is not None and is_known:
        with suppress(SdssmError):  # this version may not have the preset: then compare with the defaults
            base = resolve_settings(name if entry is None else entry.name, preset, task)
    values, base_values = _flatten(settings), _flatten(base)
    changed = {name: value for name, value in values.items() if name not in base_values or base_values[name] != value}
    return to_json_value(changed)  # type: ignore[no-any-return]  # of a dict it is a dict


def _flatten(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.values_by_name().items() if name not in NOT_COMPARED}


def canonical_task_name(task: Task) -> str:
    """Return the name of the task as the library spells it, if it is a task of the library.

    >>> from sdssm.tasks import get_task
    >>> canonical_task_name(get_task("C2xC4")), canonical_task_name(get_task("even-pairs"))
    ('c2xc4', 'even_pairs')
    >>> canonical_task_name(get_task("regex:A*"))  # an expression is case-sensitive
    'regex:A*'
    """
    name = task.name.strip().lower().replace("-", "_")
    if name == task.name or "regex" in name or Path(name).suffix:
        return task.name
    try:
        return name if get_library_task(name).digest == task.digest else task.name
    except SdssmError:
        return task.name
