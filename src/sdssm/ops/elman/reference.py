"""Elman scan as a plain loop over time."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.reference import loop


def step(W: Tensor, drive: Tensor, x: Tensor) -> Tensor:
    """Return relu(W x + drive) for W (..., N, N), drive (..., B, N) and x (..., B, N)."""
    return torch.relu(x @ W.mT + drive)


def scan(W: Tensor, drive: Tensor, x0: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the states (..., B, L, N) and the last ones (..., B, N).

    W (..., N, N), drive (..., B, L, N), x0 (..., B, N), lengths (..., B).
    """

    def step_at(t: int, x: Tensor) -> Tensor:
        return step(W, drive[..., t, :], x)

    return loop(step_at, x0, drive.shape[-2], lengths, rescale=False)
