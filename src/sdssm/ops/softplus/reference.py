"""Softplus of a linear map, in torch."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def softplus_map(r: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor]:
    """Return log(1 + exp(weight r + bias)) (..., B, D) for r (..., B, K), weight (..., D, K), bias (..., D)."""
    return (functional.softplus(r @ weight.mT + bias[..., None, :]),)
