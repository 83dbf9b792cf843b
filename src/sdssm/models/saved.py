"""Loading models from folders that `Classifier.save` or a training run wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from sdssm.devices import resolve_device
from sdssm.errors import ModelError
from sdssm.models.classifier import Classifier
from sdssm.models.model_folder import check_model_folder_free, is_model_folder, load_saved_task, read_model_config
from sdssm.models.names import load_tensors
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE, ModelSettings
from sdssm.settings import build_settings

__all__ = [
    "build_model",
    "check_model_folder_free",
    "is_model_folder",
    "load_model",
    "load_saved_task",
    "read_model_config",
]


def load_model(folder: str | Path, *, device: str | torch.device = "cpu") -> Classifier:
    """Load the model that was saved in a folder, with its task if that is stored, onto any device."""
    folder, target = Path(folder), resolve_device(device)
    config = read_model_config(folder)
    path = folder / WEIGHTS_FILE
    if not path.exists():
        raise ModelError(f"{folder} has a {CONFIG_FILE} but no {WEIGHTS_FILE}; the training has not finished")
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    model = build_model(config, weights, str(path)).to(target)
    model.task = load_saved_task(folder)
    return model


def build_model(config: dict[str, Any], weights: dict[str, torch.Tensor], source: str) -> Classifier:
    """Build the model that a config describes, and load these weights."""
    try:
        settings = build_settings(ModelSettings, config["model"])
        model = Classifier(settings, config["n_symbols"], config["n_classes"], generator=torch.Generator())
        model = model.to(weights["readout.weight"].dtype)
        load_tensors(model, weights)
    except (KeyError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise ModelError(f"{source} does not hold the model that its {CONFIG_FILE} describes: {reason}") from None
    return model.eval()
