"""Mixed matrices in plain torch, with torch's own gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.norms import column_norms


def mixed(dictionary: Tensor, weights: Tensor, p: float | Tensor | None) -> Tensor:
    """sum_k weights[v, k] dictionary_k: (..., K, N, N), (..., V, K) -> (..., V, N, N); p a number or tensor (...)."""
    matrices = torch.einsum("...vk,...kij->...vij", weights, dictionary)
    if p is None:
        return matrices
    per_symbol = p[..., None] if isinstance(p, Tensor) else p
    return matrices / column_norms(matrices, per_symbol)[..., None, :]
