"""The column-mixture scan as a plain loop over time with dense matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.column_one_hot.reference import step
from sdssm.ops.reference import loop


def column_softmax(dictionary: Tensor, weights: Tensor) -> Tensor:
    """Return the softmax of each column of sum_k weights[k] dictionary_k.

    dictionary (..., K, N, N) and weights (..., *, K) -> (..., *, N, N).
    """
    size = dictionary.shape[-1]
    # Columns are contiguous here: a softmax across memory is many times slower.
    mixed = weights @ dictionary.mT.flatten(-2)
    return torch.softmax(mixed.reshape(*mixed.shape[:-1], size, size), dim=-1).mT


def scan(
    dictionary: Tensor, weights: Tensor, D: Tensor, b: Tensor | None, x0: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return all states and the last ones of x_t = P_t (D_t * x_{t-1}) + b_t, from x0 (..., B, N)."""

    def step_at(t: int, x: Tensor) -> Tensor:
        P = column_softmax(dictionary, weights[..., t, :])
        return step(P, D[..., t, :], x, None if b is None else b[..., t, :])

    return loop(step_at, x0, weights.shape[-2], lengths, rescale=False)
