"""The law on saving and loading a model."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load

from sdssm.layers.settings import is_catalogue_model
from sdssm.models import TokenModel, load_model
from sdssm.models.module_settings import ModuleSettings, options_class
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
        copies = [load_model(Path(folder), device=model.device)] if has_known_code(model) else []
    other = _build_other(case).to(model.device)
    dtype = next((value.dtype for value in model.state_dict().values() if value.is_floating_point()), None)
    other = other if dtype is None else other.to(dtype)
    load_tensors(other, load(model.to_safetensors()))
    largest = 0.0
    for loaded in (*copies, other):
        read = LawCase(loaded.eval(), case.task, case.seed).read(tokens)
        largest = max(largest, case.require_same(read, logits, "when the model is saved and loaded"))
    return describe_largest(largest)


def has_known_code(model: TokenModel) -> bool:
    """Return whether the model can be built again from its settings alone, without importing anything.

    A module that someone built has the name of its class, which may be registered, but its options are not known.
    """
    settings = model.settings
    if is_catalogue_model(settings.name, settings.import_path):
        return True
    entry = registered_entry(settings.name, settings.import_path)
    if entry is None:
        return False
    return not isinstance(settings, ModuleSettings) or type(settings.options) is options_class(entry.target)


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
