"""Linear maps in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.products import product

#: Functions of the results, by name.
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": functional.gelu,
}


def apply(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Return activation(x W^T + bias): x (..., D), weight (F, D), bias (F,) -> (..., F)."""
    # Under vmap torch.nn.functional.linear also multiplies the bias by 1.
    y = product(x, weight.mT)
    return ACTIVATIONS[activation](y if bias is None else y + bias)
