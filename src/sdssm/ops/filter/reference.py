"""The causal filter in plain torch, differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.layout import broadcast_shapes

#: Added to a squared norm before its root, as in the published code of DeltaNet.
NORM_EPSILON = 1e-6


def prepend(x: Tensor, before: Tensor | None, count: int) -> Tensor:
    """Return x with `before`, or `count` zeros, prepended: (..., L, C) -> (..., count + L, C)."""
    if before is None:
        return functional.pad(x, (0, 0, count, 0))
    if before.shape[:-2] != x.shape[:-2]:
        rows = broadcast_shapes(x.shape[:-2], before.shape[:-2])
        before, x = before.expand(*rows, *before.shape[-2:]), x.expand(*rows, *x.shape[-2:])
    return torch.cat([before, x], -2)


def convolve(inputs: Tensor, filters: Tensor, bias: Tensor | None) -> Tensor:
    """Return sum_i filters[i] inputs[t + i] + bias for every t: (..., B, L, C).

    inputs: (..., B, T - 1 + L, C); filters: (..., T, C).
    """
    # A sum of shifted products: under vmap, torch's convolution would become a slow one with many groups.
    taps = filters.shape[-2]
    length = inputs.shape[-2] - taps + 1
    weights = filters[..., None, None, :]  # (..., T, 1, 1, C)
    y = weights[..., 0, :, :, :] * inputs[..., :length, :]
    for i in range(1, taps):
        y = y + weights[..., i, :, :, :] * inputs[..., i : i + length, :]
    return y if bias is None else y + bias[..., None, None, :]


def filter_inputs(
    x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None, vectors: int, size: int
) -> tuple[Tensor]:
    """Return the filtered inputs y (..., B, L, C).

    x (..., B, L, C), filters (..., T, C), bias (..., C), before (..., B, T - 1, C).
    """
    y = functional.silu(convolve(prepend(x, before, filters.shape[-2] - 1), filters, bias))
    if not vectors:
        return (y,)
    groups = y[..., : vectors * size].reshape(*y.shape[:-1], vectors, size)
    return (torch.cat([(groups * inverse_norms(groups)).flatten(-2), y[..., vectors * size :]], -1),)


def inverse_norms(groups: Tensor) -> Tensor:
    """Return 1 / sqrt(|v|^2 + NORM_EPSILON) of vectors v (..., size): (..., 1)."""
    return (groups.square().sum(-1, keepdim=True) + NORM_EPSILON).rsqrt()
