"""The causal filter on the CPU, with a gradient that accumulates in place."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.filter.reference import convolve, inverse_norms, prepend


def forward(
    x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None, vectors: int, size: int
) -> tuple[Tensor, Tensor]:
    """Return y and the argument of SiLU, both (R, B, L, C).

    x (R, B, L, C), filters (R, T, C), bias (R, C), before (R, B, T - 1, C).
    """
    z = convolve(prepend(x, before, filters.shape[1] - 1), filters, bias)
    y = functional.silu(z)
    if vectors:
        groups = group_view(y, vectors, size)
        groups.mul_(inverse_norms(groups))
    return y, z


def backward(
    grad: Tensor, x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None,
    y: Tensor, z: Tensor, vectors: int, size: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of x, filters, bias and before.

    The gradient of a normalised group v = u / |u| is du = (dv - v <v, dv>) / |u|.
    """
    taps, length = filters.shape[1], x.shape[2]
    if vectors:
        grad = grad.clone()
        dv, v = group_view(grad, vectors, size), group_view(y, vectors, size)
        inverse = inverse_norms(functional.silu(group_view(z, vectors, size)))
        dv.sub_(v * (v * dv).sum(-1, keepdim=True)).mul_(inverse)
    dz = torch.ops.aten.silu_backward(grad, z)
    inputs = prepend(x, before, taps - 1)
    dinputs, dfilters = torch.zeros_like(inputs), torch.empty_like(filters)
    for i in range(taps):
        dfilters[:, i] = (dz * inputs[:, :, i : i + length]).sum((1, 2))
        dinputs[:, :, i : i + length] += filters[:, i, None, None] * dz
    dbias = None if bias is None else dz.sum((1, 2))
    dbefore = None if before is None else dinputs[:, :, : taps - 1].contiguous()
    return dinputs[:, :, taps - 1 :].contiguous(), dfilters, dbias, dbefore


def group_view(y: Tensor, vectors: int, size: int) -> Tensor:
    """Return a view of the groups of channels that are normalised: (..., C) -> (..., vectors, size)."""
    return y[..., : vectors * size].view(*y.shape[:-1], vectors, size)
