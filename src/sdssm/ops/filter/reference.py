"""The causal filter in plain torch, with torch's own gradients."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

#: What is added to a squared length before its root, as in the public code of DeltaNet.
LENGTH_EPSILON = 1e-6


def joined(x: Tensor, before: Tensor | None, many: int) -> Tensor:
    """The inputs with the `many` before them, zeros where None: (..., L, C) -> (..., many + L, C)."""
    if before is None:
        return functional.pad(x, (0, 0, many, 0))
    if before.shape[:-2] != x.shape[:-2]:
        rows = torch.broadcast_shapes(x.shape[:-2], before.shape[:-2])  # type: ignore[no-untyped-call]  # torch's own
        before, x = before.expand(*rows, *before.shape[-2:]), x.expand(*rows, *x.shape[-2:])
    return torch.cat([before, x], -2)


def convolved(inputs: Tensor, filters: Tensor, bias: Tensor | None) -> Tensor:
    """sum_i filters[i] inputs[t + i] + bias: (..., B, T - 1 + L, C), (..., T, C) -> (..., B, L, C)."""
    # Shifted products: mapped over models, torch's own convolution would become one of many groups.
    taps = filters.shape[-2]
    length = inputs.shape[-2] - taps + 1
    weights = filters[..., None, None, :]  # (..., T, 1, 1, C)
    y = weights[..., 0, :, :, :] * inputs[..., :length, :]
    for i in range(1, taps):
        y = y + weights[..., i, :, :, :] * inputs[..., i : i + length, :]
    return y if bias is None else y + bias[..., None, None, :]


def filtered(x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None, vectors: int, size: int) -> Tensor:
    """x (..., B, L, C), filters (..., T, C), bias (..., C), before (..., B, T - 1, C) -> y (..., B, L, C)."""
    y = functional.silu(convolved(joined(x, before, filters.shape[-2] - 1), filters, bias))
    if not vectors:
        return y
    runs = y[..., : vectors * size].reshape(*y.shape[:-1], vectors, size)
    return torch.cat([(runs * inverse_lengths(runs)).flatten(-2), y[..., vectors * size :]], -1)


def inverse_lengths(runs: Tensor) -> Tensor:
    """Of vectors (..., size): (..., 1)."""
    return (runs.square().sum(-1, keepdim=True) + LENGTH_EPSILON).rsqrt()
