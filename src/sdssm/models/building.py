"""Build the model that settings describe, untrained or with weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sdssm.errors import ModelError
from sdssm.models.classifier import Classifier
from sdssm.models.module_probe import check_reading
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.names import load_tensors
from sdssm.models.recorded_models import find_recorded_entry
from sdssm.models.settings import CONFIG_FILE, ModelSettings, build_model_settings, recorded_name
from sdssm.models.token_model import TokenModel
from sdssm.models.wrapped_module import WrappedModule, build_module


def untrained_model(settings: ModelSettings | ModuleSettings, n_symbols: int, n_classes: int, seed: int) -> TokenModel:
    """Return an untrained model, a function of its settings and the seed alone.

    >>> untrained_model(ModelSettings(name="lstm"), 2, 3, seed=0).name
    'lstm'
    """
    entry = find_recorded_entry(settings.name, settings.import_path, trust=False, source="the config")
    if isinstance(settings, ModuleSettings):
        return build_module(entry, settings, n_symbols, n_classes, seed)
    return Classifier(settings, n_symbols, n_classes, generator=torch.Generator().manual_seed(seed))


def import_recorded_model(config: Mapping[str, Any], source: str, *, trust: bool) -> None:
    """Import the code of the model that a config names, which is done only with `trust`.

    A model of the catalogue, or one that is registered already, needs no import. `source` is the folder of the config.
    """
    name, path = recorded_name(config["model"])
    if "options" in config["model"] or path is not None:
        find_recorded_entry(name, path, trust=trust, source=source)


def build_model(config: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> TokenModel:
    """Build the model that a config describes, and load these weights."""
    try:
        settings = build_model_settings(config["model"])
        model = untrained_model(settings, config["n_symbols"], config["n_classes"], seed=0)
        if isinstance(model, Classifier):
            model = model.to(weights["readout.weight"].dtype)
        load_tensors(model, weights)
    except (KeyError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise ModelError(f"{source} does not hold the model that its {CONFIG_FILE} describes: {reason}") from None
    if isinstance(model, WrappedModule):
        check_reading(model)  # a weight of zero in the untrained module may have hidden what it reads
    return model.eval()
