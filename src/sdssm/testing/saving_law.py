"""The law on saving and loading a model."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load

from sdssm.layers.settings import MIXER_SETTINGS
from sdssm.models import TokenModel, load_model
from sdssm.models.names import load_tensors
from sdssm.models.registry import registered_entry
from sdssm.testing.law import LawBroken
from sdssm.testing.law_case import LawCase, describe_largest
from sdssm.testing.reading_laws import SHORT


def check_saving(case: LawCase) -> str:
    """Save a model, load it, and compare the predictions.

    The weights are also loaded into a model that was built from another seed: what is not saved shows there.
    """
    model, tokens = case.model, case.draw_strings(3, case.length(SHORT))
    logits = case.read(tokens)
    with TemporaryDirectory() as folder:
        try:
            model.save(folder)
        except Exception as error:
            raise LawBroken(f"it cannot be saved: {type(error).__name__}: {error}") from None
        copies = [load_model(Path(folder), device=model.device)] if _can_be_loaded(model) else []
    other = _build_other(case).to(device=model.device)
    load_tensors(other, load(model.to_safetensors()))
    largest = 0.0
    for loaded in (*copies, other):
        loaded.to(logits.dtype).eval()
        read = LawCase(loaded, case.task, case.seed).read(tokens)
        largest = max(largest, case.require_same(read, logits, "when the model is saved and loaded"))
    return describe_largest(largest)


def _can_be_loaded(model: TokenModel) -> bool:
    """Return whether `load_model` finds the code of a model without importing anything."""
    known = model.settings.name in MIXER_SETTINGS and model.settings.import_path is None
    return known or registered_entry(model.settings.name, model.settings.import_path) is not None


def _build_other(case: LawCase) -> TokenModel:
    """Return a model of the same shape with other parameters."""
    if case.build_another is not None:
        return case.build_another(case.seed + 1)
    other = copy.deepcopy(case.model)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(1)
    return other
