"""Loading models from folders that `TokenModel.save` or a training run wrote."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from sdssm.devices import resolve_device
from sdssm.errors import ModelError, first_line
from sdssm.files import format_path
from sdssm.models.building import build_model, fill_model, import_recorded_model, prepare_model
from sdssm.models.evidence import read_evidence
from sdssm.models.model_folder import check_model_folder_free, is_model_folder, load_saved_task, read_model_config
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.models.token_model import TokenModel

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
    try:
        model = prepare_model(config, _read_shapes(path), format_path(path))  # before anything of that size is read
        model = fill_model(model, load_file(path), format_path(path)).to(target)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{format_path(path)} cannot be read: {first_line(error)}") from None
    model.task, model.evidence = load_saved_task(folder), read_evidence(folder, model)
    return model


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors in a file of weights, from its header."""
    with safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  # not a dict
