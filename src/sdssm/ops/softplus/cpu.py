"""Softplus of a linear map on the CPU, in torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def forward(r: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor]:
    """Return y (R, B, D) for r (R, B, K), weight (R, D, K), bias (R, D)."""
    return (functional.softplus(torch.baddbmm(bias[:, None], r, weight.mT)),)


def backward(grad: Tensor, r: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of r, weight and bias; the derivative of softplus is the logistic function."""
    dz = torch.baddbmm(bias[:, None], r, weight.mT).sigmoid_().mul_(grad)
    return dz @ weight, dz.mT @ r, dz.sum(1)
