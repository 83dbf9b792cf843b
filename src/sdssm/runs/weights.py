"""Load the model of a run: its final weights, or those of the last checkpoint while it trains."""

from __future__ import annotations

from pathlib import Path

import torch

from sdssm.devices import resolve_device
from sdssm.models import Classifier, load_model
from sdssm.models.classifier import WEIGHTS_FILE
from sdssm.models.saved import build_model, read_model_config
from sdssm.runs.folder import RunFolder

#: Prefixes of the names in a checkpoint that belong to the training, not to the model.
TRAINING_PREFIXES = ("adam.", "window.", "best")


def load(folder: str | Path, *, device: str | torch.device = "cpu") -> Classifier:
    """Load the model in a folder that was written by `model.save` or by a training, finished or not.

    >>> from tempfile import TemporaryDirectory
    >>> from sdssm.models import ModelSettings
    >>> model = Classifier(ModelSettings(), 2, 60, generator=torch.Generator().manual_seed(0))
    >>> with TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     same = load(folder)
    >>> torch.equal(model.dictionary, same.dictionary)
    True
    """
    path, device = Path(folder), resolve_device(device)
    config = read_model_config(path)
    run = RunFolder.open(path) if "format" in config else None  # it refuses a newer format
    if run is None or (path / WEIGHTS_FILE).exists():
        return load_model(path, device=device)
    checkpoint = run.load_checkpoint()
    weights = {name: value for name, value in checkpoint.tensors.items() if not name.startswith(TRAINING_PREFIXES)}
    return build_model(config, weights, f"the checkpoint of step {checkpoint.step}").to(device)
