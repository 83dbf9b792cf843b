"""The names of parameters and buffers in weight files and checkpoints.

In memory a model is an ordinary module: the dictionary of its first layer is `layers.0.mixer.dictionary`. In files the
parameters of a single-layer SD-SSM have the names of the paper, without the path to the layer: `dictionary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from sdssm.models.stack import Stack

#: The path to the mixer of a single-layer model.
SINGLE_LAYER = "layers.0.mixer."


def file_name(model: Stack, name: str) -> str:
    """Return the name in a file of the parameter or buffer that the module calls `name`.

    >>> import torch
    >>> from sdssm.models import Classifier, ModelSettings
    >>> model = Classifier(ModelSettings(), 2, 60, generator=torch.Generator().manual_seed(0))
    >>> file_name(model, "layers.0.mixer.dictionary"), file_name(model, "readout.weight")
    ('dictionary', 'readout.weight')
    """
    return name.removeprefix(SINGLE_LAYER) if model.is_single_sd_ssm else name


def tensors_for_file(model: Stack) -> dict[str, Tensor]:
    """Return all parameters and buffers of a model by their names in a file."""
    return {file_name(model, name): value for name, value in model.state_dict().items()}


def load_tensors(model: Stack, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors, by their names in a file, into a model; the reverse of `tensors_for_file`.

    Raises the RuntimeError of `nn.Module.load_state_dict` if a name is missing or unknown or a shape differs.
    """
    module_names = {file_name(model, name): name for name in model.state_dict()}
    model.load_state_dict({module_names.get(name, name): value for name, value in tensors.items()})
