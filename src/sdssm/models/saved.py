"""Loading models from folders that `TokenModel.save` or a training run wrote."""

from __future__ import annotations

from pathlib import Path

import torch

from sdssm.devices import resolve_device
from sdssm.errors import ModelError
from sdssm.files import format_path
from sdssm.models.building import build_model, import_recorded_model
from sdssm.models.evidence import read_evidence
from sdssm.models.model_folder import (
    check_model_folder_free,
    is_model_folder,
    load_saved_task,
    read_model_config,
)
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.models.token_model import TokenModel
from sdssm.models.weight_file import read_weights

__all__ = [
    "build_model",
    "check_model_folder_free",
    "is_model_folder",
    "load_model",
    "load_saved_task",
    "read_model_config",
]


def load_model(folder: str | Path, *, device: str | torch.device = "cpu", trust: bool = False) -> TokenModel:
    """Load the model that was saved in a folder, with its task if that is stored, onto any device.

    The code of a model that is not part of this package is imported only with `trust`.
    """
    folder, target = Path(folder), resolve_device(device)
    config = read_model_config(folder)
    import_recorded_model(config, format_path(folder), trust=trust)
    path = folder / WEIGHTS_FILE
    if not path.exists():
        raise ModelError(
            f"{format_path(folder)} has a {CONFIG_FILE} but no {WEIGHTS_FILE}; the training has not finished"
        )
    weights, _ = read_weights(folder, config)
    model = build_model(config, weights, format_path(path)).to(target)
    model.task, model.evidence = load_saved_task(folder), read_evidence(folder, model)
    return model
