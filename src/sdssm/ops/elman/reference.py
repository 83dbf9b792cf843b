"""Elman scan as a plain loop."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.reference import loop


def step(W: Tensor, drive: Tensor, x: Tensor) -> Tensor:
    """relu(W x + drive) for W (..., N, N), drive (..., B, N) and x (..., B, N)."""
    return torch.relu(x @ W.mT + drive)


def scan(W: Tensor, drive: Tensor, x0: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """h_t = relu(W h_{t-1} + drive_t) for drive (..., B, L, N), from x0 (..., B, N)."""

    def at(t: int, x: Tensor) -> Tensor:
        return step(W, drive[..., t, :], x)

    return loop(at, x0, drive.shape[-2], lengths, rescale=False)
