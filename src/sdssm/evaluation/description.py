"""How a record describes a run: canonical task name, and settings changed from its preset.

Two runs with the same description differ in nothing but their seeds, and may be averaged.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from sdssm.errors import SdssmError
from sdssm.models.settings import unchanged_settings
from sdssm.runs.comparison import WITHOUT_EFFECT, differing_values, known_model_name
from sdssm.runs.events import to_json_value
from sdssm.runs.schema import Settings, resolve_settings
from sdssm.tasks import Task
from sdssm.tasks.library import get_library_task

#: Settings that are not compared: those without effect, and train_length, which has its own field in a record.
NOT_COMPARED = (*WITHOUT_EFFECT, "train_length")


def changed_settings(settings: Settings, preset: str | None, task: str) -> dict[str, Any]:
    """Return the settings that differ from the preset for the task.

    If preset is None, they are compared with the defaults.

    >>> changed_settings(resolve_settings("sd-ssm", "paper", "a5", {"lr": 0.01}), "paper", "a5")
    {'lr': 0.01}
    """
    base, name = Settings(model=unchanged_settings(settings.model)), known_model_name(settings.model)
    if preset is not None and name is not None:
        with suppress(SdssmError):  # this version may not have the preset: then compare with the defaults
            base = resolve_settings(name, preset, task)
    changed = differing_values(settings.values_by_name(), base.values_by_name())
    compared = {name: value for name, value in changed.items() if name not in NOT_COMPARED}
    return to_json_value(compared)  # type: ignore[no-any-return]  # of a dict it is a dict


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
