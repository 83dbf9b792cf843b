"""Loading models from folders that `Classifier.save` or a training run wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from sdssm.devices import resolve_device
from sdssm.errors import ModelError
from sdssm.files import describe_file_error, format_path
from sdssm.models.classifier import CONFIG_FILE, WEIGHTS_FILE, Classifier
from sdssm.models.names import load_tensors
from sdssm.models.settings import ModelSettings
from sdssm.settings import build_settings


def load_model(folder: str | Path, *, device: str | torch.device = "cpu") -> Classifier:
    """Load the model that was saved in a folder, onto any device."""
    folder, target = Path(folder), resolve_device(device)
    config = read_model_config(folder)
    path = folder / WEIGHTS_FILE
    if not path.exists():
        raise ModelError(f"{folder} has a {CONFIG_FILE} but no {WEIGHTS_FILE}; the training has not finished")
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    return build_model(config, weights, str(path)).to(target)


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


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder was written by `Classifier.save`, and not by a training run."""
    try:
        return "format" not in read_model_config(folder)
    except (ModelError, ValueError):  # not a model, or not a valid path
        return False


def read_model_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a folder; raise ModelError if it is missing or does not describe a model."""
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            f"{format_path(folder)} has no {CONFIG_FILE}; pass a folder that a model or a run was saved in"
        ) from None
    except OSError as error:
        raise ModelError(f"{format_path(path)} cannot be read: {describe_file_error(error)}") from None
    except ValueError:
        raise ModelError(f"{format_path(path)} cannot be read: it is not JSON") from None
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise ModelError(f"{path} does not describe a model; pass a folder that a model or a run was saved in")
    return config
