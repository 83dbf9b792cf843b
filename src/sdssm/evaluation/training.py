"""What tells one training from another, but for its seed: the task, the preset and the settings changed from it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from sdssm.errors import SdssmError
from sdssm.models import ModelSettings
from sdssm.runs.events import finite
from sdssm.runs.schema import Settings, resolve, setting_names
from sdssm.tasks import Task
from sdssm.tasks import get_task as named_task

#: Settings that say how often something is written, not what is learned; and one that stands apart, as it was resolved.
NOT_COMPARED = ("checkpoint_every", "log_every", "train_length")


def changed_settings(settings: Settings, preset: str | None, task: str) -> dict[str, Any]:
    """The settings that are not those of the preset for the task; without a preset, not the defaults.

    >>> changed_settings(resolve("sd-ssm", "paper", "a5", {"lr": 0.01}), "paper", "a5")
    {'lr': 0.01}
    """
    base = Settings(model=ModelSettings(name=settings.model.name))
    if preset is not None:
        with suppress(SdssmError):  # of a preset that this version does not have: all that is not default
            base = resolve(settings.model.name, preset, task)
    ours, theirs = _flat(settings), _flat(base)
    changed = {name: value for name, value in ours.items() if name not in theirs or theirs[name] != value}
    return finite(changed)  # type: ignore[no-any-return]  # a dict stays one


def _flat(settings: Settings) -> dict[str, Any]:
    owners = {"mixer": settings.model.mixer, "model": settings.model, "train": settings.train}
    named = {name: part for name, (part, _) in setting_names(settings).items() if name not in NOT_COMPARED}
    return {name: getattr(owners[part], name) for name, part in named.items()}


def common_name(of: Task) -> str:
    """The task's name as the library spells it, however it was typed.

    >>> common_name(named_task("C2xC4")), common_name(named_task("even-pairs"))
    ('c2xc4', 'even_pairs')
    >>> common_name(named_task("regex:A*"))  # letters of an expression are its own
    'regex:A*'
    """
    name = of.name.strip().lower().replace("-", "_")
    if name == of.name or "regex" in name or Path(name).suffix:
        return of.name
    try:
        return name if named_task(name).digest == of.digest else of.name
    except SdssmError:
        return of.name
