"""Load the model of a run: its final weights, or those of the last checkpoint while it trains."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from sdssm.devices import resolve_device
from sdssm.errors import RunError, SdssmError
from sdssm.files import format_path
from sdssm.models import TokenModel, load_model
from sdssm.models.building import build_model, import_recorded_model
from sdssm.models.model_folder import read_model_config
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.runs.checkpoint import select_model_tensors
from sdssm.runs.folder import RunFolder
from sdssm.runs.own_files import check_no_links
from sdssm.runs.single import RunSource, folder_path, only_run


def load(source: RunSource, *, device: str | torch.device = "cpu", trust: bool = False) -> TokenModel:
    """Load the model of a run, finished or not, or a model that `model.save` wrote.

    source: a run, the runs of a training if it is only one, the folder of either, or the folder of a saved model.
    trust: import the code of a model that is not part of this package, as the folder names it. Without it such a model
        is loaded only if it was registered before (`sdssm.register`).

    >>> from tempfile import TemporaryDirectory
    >>> from sdssm.models import Classifier, ModelSettings
    >>> model = Classifier(ModelSettings(), 2, 60, generator=torch.Generator().manual_seed(0))
    >>> with TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     same = load(folder)
    >>> torch.equal(model.dictionary, same.dictionary)
    True
    """
    if isinstance(source, TokenModel):
        raise RunError("a model was passed, which needs no loading; use it as it is")
    path, device = _model_folder(source), resolve_device(device)
    config = read_model_config(path)
    if "format" in config:
        check_no_links(path)
    import_recorded_model(config, format_path(path), trust=trust)
    run = RunFolder.open(path) if "format" in config else None  # it refuses a newer format
    if run is None:
        return load_model(path, device=device)
    has_weights = (path / WEIGHTS_FILE).exists()
    if not has_weights and run.status == "finished":
        raise RunError(
            f"{format_path(path / WEIGHTS_FILE)} is missing, although the run is finished; sdssm runs --repair "
            f"{format_path(path)} restores it"
        )
    if has_weights:
        model = load_model(path, device=device)
    else:
        checkpoint = run.load_checkpoint()
        weights = select_model_tensors(checkpoint.tensors)
        model = build_model(config, weights, f"the checkpoint of step {checkpoint.step}").to(device)
    with suppress(SdssmError):  # the file of the task may be gone or changed; the model can be used without it
        model.task = replace(run.config.load_task(), train_length=run.config.train_length)
    return model


def _model_folder(source: RunSource) -> Path:
    """Return the folder of the only model of a source."""
    if isinstance(source, str | Path):
        path = folder_path(source)
        is_empty = path.is_dir() and not any(path.glob(f"**/{CONFIG_FILE}"))
        if is_empty or (path / CONFIG_FILE).exists():
            return path  # a model, or an error that says what is missing
    return only_run(source).path
