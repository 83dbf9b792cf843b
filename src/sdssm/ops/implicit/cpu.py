"""The filter of Hyena on the CPU, with its gradient written down: a third of the calls of torch that autograd makes."""

from __future__ import annotations

import torch
from torch import Tensor


def forward(
    features: Tensor,
    window: Tensor,
    frequency: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
    last: Tensor,
    length: int,
) -> tuple[Tensor, ...]:
    """Return taps (R, D, L), and for the gradient inputs and results (R, L, H) of the three sines."""
    x, scale, saved = features[:, :length], frequency[:, None], list[Tensor]()
    for weight, bias in ((weight1, bias1), (weight2, bias2), (weight3, bias3)):
        z = torch.baddbmm(bias[:, None], x, weight.mT)
        x = torch.sin(scale * z)
        saved += [z, x]
    return torch.bmm(last, x.mT) * window[:, :length].mT, *saved


def backward(
    grad: Tensor,
    features: Tensor,
    window: Tensor,
    frequency: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
    last: Tensor,
    z1: Tensor,
    x1: Tensor,
    z2: Tensor,
    x2: Tensor,
    z3: Tensor,
    x3: Tensor,
    length: int,
) -> tuple[Tensor, ...]:
    """Return the gradients of all tensors but the window."""
    grad, scale = grad * window[:, :length].mT, frequency[:, None]
    grad_last, dx = torch.bmm(grad, x3), torch.bmm(grad.mT, last)
    grad_frequency, grads = torch.zeros_like(frequency), list[Tensor]()
    for x, weight, z in ((x2, weight3, z3), (x1, weight2, z2), (features[:, :length], weight1, z1)):
        slope = dx.mul_(torch.cos(scale * z))
        grad_frequency += (slope * z).sum(1)
        dz = slope.mul_(scale)
        grads = [torch.bmm(dz.mT, x), dz.sum(1), *grads]
        dx = torch.bmm(dz, weight)
    grad_features = torch.zeros_like(features)
    grad_features[:, :length] = dx
    return grad_features, grad_frequency, *grads, grad_last
