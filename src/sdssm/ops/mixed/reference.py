"""Mixed matrices in plain torch, with gradients by autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.norms import column_norms


def mix(dictionary: Tensor, weights: Tensor, p: float | Tensor | None) -> Tensor:
    """Return sum_k weights[v, k] dictionary_k with normalised columns.

    dictionary (..., K, N, N), weights (..., V, K) -> (..., V, N, N); p is a number, a tensor (...) or None.
    """
    matrices = torch.einsum("...vk,...kij->...vij", weights, dictionary)
    if p is None:
        return matrices
    per_symbol = p[..., None] if isinstance(p, Tensor) else p
    return matrices / column_norms(matrices, per_symbol)[..., None, :]
