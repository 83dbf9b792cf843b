"""Taps of convolutions for kernels that read strings one channel beside the other."""

from __future__ import annotations

import torch
from torch import Tensor


def taps_with_skip(kernel: Tensor, skip: Tensor) -> Tensor:
    """Return the taps of y = K * u + D u with channels last: K (R, D, T) and D (R, D) -> (R, at least one tap, D).

    >>> taps_with_skip(torch.tensor([[[1.0, 10.0]]]), torch.tensor([[2.0]])).tolist()
    [[[3.0], [10.0]]]
    """
    if not kernel.shape[-1]:
        return skip[:, None].contiguous()
    taps = kernel.mT.clone(memory_format=torch.contiguous_format)
    taps[:, 0] += skip
    return taps


def taps_without_skip(grad: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of K and D from that of `taps_with_skip`."""
    return grad[:, : kernel.shape[-1]].mT.clone(memory_format=torch.contiguous_format), grad[:, 0].clone()
