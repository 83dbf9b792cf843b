"""Complex numbers of a given absolute value on the CPU, in torch."""

from __future__ import annotations

import torch
from torch import Tensor


def forward(raw: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return a = radius w / |w| (R, M, N, 2) and radius / |w|, 0 for zeros, (R, M, N), for raw (R, M, 2 N)."""
    real, imaginary = raw.chunk(2, dim=-1)
    size = torch.hypot(real, imaginary)  # the squares neither overflow nor underflow
    zero = size == 0
    inverse = (radius / size).masked_fill_(zero, 0)
    a = raw.new_empty(*inverse.shape, 2)
    torch.mul(real, inverse, out=a[..., 0]).masked_fill_(zero, radius)
    torch.mul(imaginary, inverse, out=a[..., 1])
    return a, inverse


def backward(grad: Tensor, raw: Tensor, a: Tensor, inverse: Tensor, radius: float) -> tuple[Tensor]:
    """Return the gradient of raw: the part of that of a along its circle, i a / radius, over |w| / radius."""
    along = (grad[..., 1] * a[..., 0]).sub_(grad[..., 0] * a[..., 1]).mul_(inverse).mul_(radius**-2)
    result = torch.empty_like(raw)
    real, imaginary = result.chunk(2, dim=-1)
    torch.mul(along, a[..., 1], out=real).neg_()
    torch.mul(along, a[..., 0], out=imaginary)
    return (result,)
