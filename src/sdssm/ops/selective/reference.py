"""Selective scan as a plain loop over time."""

from __future__ import annotations

import torch
from torch import Tensor


def step(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return y (..., B, D) and the next h.

    x, delta (..., B, D), A (..., D, N), B, C (..., B, N), h (..., B, D, N).
    """
    decay = (delta[..., None] * A.unsqueeze(-3)).exp()
    h = decay * h + (delta * x)[..., None] * B[..., None, :]
    return (h * C[..., None, :]).sum(-1), h


def scan(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return y (..., B, L, D) and the last h of each row, from h (..., B, D, N).

    x, delta (..., B, L, D), A (..., D, N), B, C (..., B, L, N), lengths (..., B).
    """
    outputs = []
    for t in range(x.shape[-2]):
        y, next_h = step(x[..., t, :], delta[..., t, :], A, B[..., t, :], C[..., t, :], h)
        if lengths is None:
            h = next_h
        else:
            in_length = (t < lengths)[..., None]
            y, h = torch.where(in_length, y, 0), torch.where(in_length[..., None], next_h, h)
        outputs.append(y)
    return torch.stack(outputs, -2), h
