"""The causal filter on the CPU: the reference's operations, and a gradient that adds up in place."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.filter.reference import convolved, inverse_lengths, joined


def forward(
    x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None, vectors: int, size: int
) -> tuple[Tensor, Tensor]:
    """x (R, B, L, C), filters (R, T, C), bias (R, C), before (R, B, T - 1, C) -> y and what SiLU took, as x."""
    z = convolved(joined(x, before, filters.shape[1] - 1), filters, bias)
    y = functional.silu(z)
    if vectors:
        runs = runs_of(y, vectors, size)
        runs.mul_(inverse_lengths(runs))
    return y, z


def backward(
    grad: Tensor, x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None,
    y: Tensor, z: Tensor, vectors: int, size: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of x, filters, bias and before. That of a run v = u / |u| is du = (dv - v <v, dv>) / |u|."""
    taps, length = filters.shape[1], x.shape[2]
    if vectors:
        grad = grad.clone()
        dv, v = runs_of(grad, vectors, size), runs_of(y, vectors, size)
        inverse = inverse_lengths(functional.silu(runs_of(z, vectors, size)))
        dv.sub_(v * (v * dv).sum(-1, keepdim=True)).mul_(inverse)
    dz = torch.ops.aten.silu_backward(grad, z)
    inputs = joined(x, before, taps - 1)
    dinputs, dfilters = torch.zeros_like(inputs), torch.empty_like(filters)
    for i in range(taps):
        dfilters[:, i] = (dz * inputs[:, :, i : i + length]).sum((1, 2))
        dinputs[:, :, i : i + length] += filters[:, i, None, None] * dz
    dbias = None if bias is None else dz.sum((1, 2))
    dbefore = None if before is None else dinputs[:, :, : taps - 1].contiguous()
    return dinputs[:, :, taps - 1 :].contiguous(), dfilters, dbias, dbefore


def runs_of(y: Tensor, vectors: int, size: int) -> Tensor:
    """The channels of the vectors, a view: (..., C) -> (..., vectors, size)."""
    return y[..., : vectors * size].view(*y.shape[:-1], vectors, size)
