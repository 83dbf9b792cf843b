"""Normalised blocks on the CPU, in torch."""

from __future__ import annotations

import torch
from torch import Tensor


def forward(A: Tensor, p: float, by: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the normalised blocks (R, M, S, S), their divisors, and the derivatives of these by the column norms.

    Divisors are (R, M, 1, 1) or (R, M, 1, S), derivatives (R, M, 1, S).
    """
    if by == "largest":
        A = A - A.mean(dim=-2, keepdim=True)
    norms: Tensor = torch.linalg.vector_norm(A, ord=p, dim=-2, keepdim=True)
    if by == "columns":
        divisors, slopes = norms.clamp(min=1), (norms >= 1).to(A.dtype)
    else:
        largest = norms.amax(dim=-1, keepdim=True)
        divisors = largest.masked_fill(largest == 0, 1)  # a block of zeros stays zero
        slopes = (norms == largest).to(A.dtype)
        slopes = slopes / slopes.sum(-1, keepdim=True)  # the largest columns share the gradient
    return A / divisors, divisors, slopes


def backward(
    grad: Tensor, A: Tensor, normal: Tensor, divisors: Tensor, slopes: Tensor, p: float, by: str
) -> tuple[Tensor]:
    """Return the gradient of A.

    The derivative of a column norm that divides is sign(y) |y|^(p - 1) at the normalised entries y.
    """
    products = (grad * normal).sum((-2, -1) if by == "largest" else -2, keepdim=True)
    result = normal.abs().pow_(p - 1).mul_(normal.sign()).mul_(products * slopes)
    torch.sub(grad, result, out=result).div_(divisors)
    if by == "largest":
        result.sub_(result.mean(dim=-2, keepdim=True))
    return (result,)
