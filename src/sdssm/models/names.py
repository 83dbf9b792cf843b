"""The names of parameters and buffers in weight files and checkpoints.

In memory a model is an ordinary module: the dictionary of its first layer is `layers.0.mixer.dictionary`. In files the
parameters of a single-layer SD-SSM have the names of the paper, without the path to the layer: `dictionary`. Those of
someone else's module have the names that the module itself gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from sdssm.models.token_model import TokenModel


def tensors_for_file(model: TokenModel) -> dict[str, Tensor]:
    """Return all parameters and buffers of a model by their names in a file.

    >>> import torch
    >>> from sdssm.models import Classifier, ModelSettings
    >>> model = Classifier(ModelSettings(), 2, 60, generator=torch.Generator().manual_seed(0))
    >>> list(tensors_for_file(model))[:2], model.file_name("layers.0.mixer.dictionary")
    (['dictionary', 'initial_state'], 'dictionary')
    """
    return {model.file_name(name): value for name, value in model.state_dict().items()}


def load_tensors(model: TokenModel, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors, by their names in a file, into a model; the reverse of `tensors_for_file`.

    Raises the RuntimeError of `nn.Module.load_state_dict` if a name is missing or unknown or a shape differs.
    """
    module_names = {model.file_name(name): name for name in model.state_dict()}
    model.load_state_dict({module_names.get(name, name): value for name, value in tensors.items()})
