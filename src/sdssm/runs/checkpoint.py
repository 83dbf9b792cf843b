"""Checkpoints: the named tensors of a step in a safetensors file with a checksum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from sdssm.checksums import ChecksumError, add_tensor_checksum, check_tensors
from sdssm.errors import RunError

#: Prefixes of the names in a checkpoint that belong to the training, not to the model.
TRAINING_PREFIXES = ("adam.", "window.", "best")
#: The prefix of the best weights so far, in the checkpoints of a training with a validation.
BEST_PREFIX = "best."
#: Written before the name of a tensor of the model that starts with one of them, as those of others' modules may.
MODEL_PREFIX = "model:"


def name_model_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of a model under names that no tensor of the training has.

    >>> import torch
    >>> list(name_model_tensors({"weight": torch.ones(1), "window.weight": torch.ones(1)}))
    ['weight', 'model:window.weight']
    """
    taken = (*TRAINING_PREFIXES, MODEL_PREFIX)
    return {MODEL_PREFIX + name if name.startswith(taken) else name: value for name, value in tensors.items()}


def select_model_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of the model among those of a checkpoint; the reverse of `name_model_tensors`."""
    return {
        name.removeprefix(MODEL_PREFIX): value
        for name, value in tensors.items()
        if not name.startswith(TRAINING_PREFIXES)
    }


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All tensors that training needs to resume after `step`, on the CPU."""

    step: int
    tensors: dict[str, Tensor]


def encode(step: int, tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a checkpoint file.

    >>> import torch
    >>> decode(encode(7, {"x": torch.ones(2)})).tensors
    {'x': tensor([1., 1.])}
    """
    # Copied, because safetensors refuses tensors that share memory, such as the rows of several replicas.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    return add_tensor_checksum(save(copies), {"step": str(step)})


def decode(data: bytes) -> Checkpoint:
    """Return the checkpoint in these bytes; raise a RunError that says how they are damaged."""
    if not data:
        raise RunError("the file is empty")
    try:
        metadata, is_verified = check_tensors(data)
        if not is_verified:
            raise RunError("the file is truncated or not a checkpoint")
        return Checkpoint(step=int(metadata["step"]), tensors=load(data))
    except ChecksumError as error:
        if "checksum" in str(error):
            raise RunError(str(error)) from None
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, RunError):
            raise
    raise RunError("the file is truncated or not a checkpoint")


def restore_model_file(checkpoint: Checkpoint) -> bytes:
    """Return model.safetensors as the training writes it after this checkpoint, to the last byte.

    With a validation these are the best weights so far, which the checkpoint holds too.
    """
    best = {
        name.removeprefix(BEST_PREFIX): value
        for name, value in checkpoint.tensors.items()
        if name.startswith(BEST_PREFIX)
    }
    return add_tensor_checksum(save({**select_model_tensors(checkpoint.tensors), **best}))
