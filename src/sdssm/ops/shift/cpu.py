"""The taps of shift systems on the CPU, compiled by numba; there is no implementation without it."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.compiled import import_kernels, run_over_rows


def forward(B: Tensor, C: Tensor, length: int) -> tuple[Tensor]:
    """Return taps (R, D, L) for B and C (R, D, N)."""
    taps = B.new_empty(*B.shape[:2], length)
    rows = B.flatten(0, 1)
    arrays = (tensor.detach().flatten(0, 1).numpy() for tensor in (B, C, taps))
    run_over_rows(import_kernels("shift").forward, len(rows), rows.numel() * length, *arrays)
    return (taps,)


def backward(grad: Tensor, B: Tensor, C: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of B and C."""
    dB, dC = torch.empty_like(B), torch.empty_like(C)
    rows = B.flatten(0, 1)
    arrays = (tensor.detach().flatten(0, 1).numpy() for tensor in (grad.contiguous(), B, C, dB, dC))
    run_over_rows(import_kernels("shift").backward, len(rows), 2 * rows.numel() * length, *arrays)
    return dB, dC
