"""Checkpoints: the named tensors of a step in a safetensors file with a checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from sdssm.errors import RunError

#: Prefixes of the names in a checkpoint that belong to the training, not to the model.
TRAINING_PREFIXES = ("adam.", "window.", "best")
#: Written before the name of a tensor of the model that starts with one of them, as those of others' modules may.
MODEL_PREFIX = "model:"


def name_model_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of a model under names that no tensor of the training has.

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

    >>> decode(encode(7, {"x": torch.ones(2)})).tensors
    {'x': tensor([1., 1.])}
    """
    # Copied, because safetensors refuses tensors that share memory, such as the rows of several replicas.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    return save(copies, metadata={"step": str(step), "sha256": _checksum(step, copies)})


def decode(data: bytes) -> Checkpoint:
    """Return the checkpoint in these bytes; raise a RunError that says how they are damaged."""
    if not data:
        raise RunError("the file is empty")
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        step, checksum = int(header["__metadata__"]["step"]), header["__metadata__"]["sha256"]
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RunError("the file is truncated or not a checkpoint") from None
    if _checksum(step, tensors) != checksum:
        raise RunError("the checksum does not match the contents")
    return Checkpoint(step=step, tensors=tensors)


def _checksum(step: int, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the step and of the names, dtypes, shapes and bytes of all tensors."""
    digest = sha256(f"step {step}\n".encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{json.dumps(name)} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
