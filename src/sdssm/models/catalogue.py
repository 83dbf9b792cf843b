"""The names of all models, and the settings of their presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sdssm.errors import SettingsError, UnknownNameError, did_you_mean
from sdssm.layers.settings import MIXER_SETTINGS
from sdssm.models.presets import PRESETS

MODELS = tuple(MIXER_SETTINGS)
DEFAULT_MODEL, DEFAULT_PRESET = "sd-ssm", "scale-free"


def list_models() -> list[str]:
    """Return the names of all models, as `train(model=...)` takes them.

    >>> list_models()[:3]
    ['sd-ssm', 'rnn', 'lstm']
    """
    return list(MODELS)


def default_preset(model: str) -> str:
    """Return the name of the preset that a model is trained with by default.

    >>> default_preset("sd-ssm"), default_preset("lstm")
    ('scale-free', 'default')
    """
    return DEFAULT_PRESET if model == DEFAULT_MODEL else "default"


def get_preset(name: str, model: str, task: str) -> Mapping[str, Any]:
    """Return the settings of a preset for a model and a task.

    >>> get_preset("paper", "sd-ssm", "a5")["column_norm"]
    1.3
    """
    if model not in MODELS:
        raise UnknownNameError(f"there is no model {model!r}; {did_you_mean(model, MODELS)}")
    if name not in PRESETS:
        raise UnknownNameError(f"there is no preset {name!r}; {did_you_mean(name, PRESETS)}")
    by_task = PRESETS[name].get(model, {})
    settings = by_task.get(task.lower().replace("-", "_"), by_task.get(""))
    if settings is None:
        if by_task:
            known = f"it has them for: {', '.join(by_task)}"
        else:
            known = f"{model} has: {', '.join(other for other, models in PRESETS.items() if model in models)}"
        raise SettingsError(f"preset {name!r} has no settings for {model} on {task}; {known}")
    return settings
