"""Compare the settings of runs: which values differ, and whether there are defaults to compare them with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sdssm.layers.settings import is_catalogue_model
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.registry import registered_entry
from sdssm.models.settings import ModelSettings

#: Settings that do not change what is trained, only what is written meanwhile.
WITHOUT_EFFECT = ("checkpoint_every", "log_every")


def differing_values(values: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the base lacks, or has with another value.

    >>> differing_values({"lr": 0.01, "steps": 10}, {"lr": 0.02, "steps": 10})
    {'lr': 0.01}
    """
    return {name: value for name, value in values.items() if name not in base or base[name] != value}


def known_model_name(model: ModelSettings | ModuleSettings) -> str | None:
    """Return the name by which a model is found without importing code; None if its code was not imported yet.

    The settings of a run folder name code of others: to look such a name up would import it.
    """
    if is_catalogue_model(model.name, model.import_path):
        return model.name
    entry = registered_entry(model.name, model.import_path)
    return None if entry is None else entry.name
