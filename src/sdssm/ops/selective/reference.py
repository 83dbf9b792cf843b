"""Selective scan as a plain loop."""

from __future__ import annotations

import torch
from torch import Tensor


def step(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """x, delta (..., B, D), A (..., D, N), B, C (..., B, N), h (..., B, D, N) -> y (..., B, D), the next h."""
    decay = (delta[..., None] * A.unsqueeze(-3)).exp()
    h = decay * h + (delta * x)[..., None] * B[..., None, :]
    return (h * C[..., None, :]).sum(-1), h


def scan(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """x, delta (..., B, L, D), B, C (..., B, L, N), from h (..., B, D, N): y (..., B, L, D), the last h of each row."""
    outputs = []
    for t in range(x.shape[-2]):
        y, new = step(x[..., t, :], delta[..., t, :], A, B[..., t, :], C[..., t, :], h)
        if lengths is None:
            h = new
        else:
            inside = (t < lengths)[..., None]
            y, h = torch.where(inside, y, 0), torch.where(inside[..., None], new, h)
        outputs.append(y)
    return torch.stack(outputs, -2), h
