"""The presets of all models, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sdssm.errors import SettingsError, UnknownNameError, did_you_mean
from sdssm.layers.settings import MIXER_SETTINGS
from sdssm.models.presets import MIXER_DEFAULTS, MODULE_DEFAULTS, PRESETS
from sdssm.models.registry import find_entry

#: The models of the catalogue; `list_models` also has those that were registered or installed.
MODELS = tuple(MIXER_SETTINGS)
DEFAULT_MODEL: str = "sd-ssm"
DEFAULT_PRESET: str = "scale-free"


def default_preset(model: str) -> str:
    """Return the name of the preset that a model is trained with by default.

    >>> default_preset("sd-ssm"), default_preset("lstm")
    ('scale-free', 'default')
    """
    return DEFAULT_PRESET if model == DEFAULT_MODEL else "default"


def list_presets(model: str) -> list[str]:
    """Return the names of the presets of a model.

    >>> list_presets("slice")
    ['default']
    """
    return [name for name, models in PRESETS.items() if model in models] or ["default"]


def get_preset(name: str, model: str, task: str) -> Mapping[str, Any]:
    """Return the settings of a preset for a model and a task.

    >>> get_preset("paper", "sd-ssm", "a5")["column_norm"]
    1.3
    """
    entry = find_entry(model)
    if name not in PRESETS:
        raise UnknownNameError(f"there is no preset {name!r}; {did_you_mean(name, PRESETS)}")
    if not entry.is_in_catalogue and name == "default":
        return {**(MODULE_DEFAULTS if entry.kind == "module" else MIXER_DEFAULTS), **entry.defaults}
    by_task = PRESETS[name].get(model, {})
    settings = by_task.get(task.lower().replace("-", "_"), by_task.get(""))
    if settings is None:
        if by_task:
            known = f"it has them for: {', '.join(by_task)}"
        else:
            known = f"{model} has: {', '.join(list_presets(model))}"
        raise SettingsError(f"preset {name!r} has no settings for {model} on {task}; {known}")
    return settings
