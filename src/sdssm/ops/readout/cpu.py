"""Readout and loss on the CPU: the forward pass finds the gradients as well, since the loss is a mean of row losses.

What arrives from outside is one number a replica, by which `backward` multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.ops.autograd import absent
from sdssm.ops.readout.reference import EPSILON, margins


def inverse_norms(v: Tensor) -> Tensor:
    """1 / ||v||_2 of each row, 0 for a row of zeros: (..., N) -> (..., 1)."""
    norm: Tensor = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return norm.reciprocal().masked_fill_(norm == 0, 0)


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    shift: Tensor | None,
    labels: Tensor,
    scale: Tensor | None,
    attraction: Tensor | None,
    norm: bool,
    cosine: bool,
    wanted: bool,
) -> tuple[Tensor, ...]:
    """Loss (R,), correct (R,), and the gradients of x, weight, bias, gain, shift and attraction if `wanted`, else and
    where not given empty ones. x (R, B, N), weight (R, C, N), bias (R, C), gain and shift (R, N), labels (R, B), the
    rest (R,).
    """
    normed, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], None, None, EPSILON) if norm else (x, x, x)
    h = normed if gain is None else normed * gain[:, None]
    h = h if shift is None else h + shift[:, None]
    z = h
    if cosine:
        h_inverse, c_inverse = inverse_norms(h), inverse_norms(weight)
        h, rows = h * h_inverse, weight * c_inverse
    else:
        rows = weight
    products = torch.bmm(h, rows.mT) if bias is None else torch.baddbmm(bias[:, None], h, rows.mT)  # (R, B, C)
    logits = products if scale is None else products * scale[:, None, None]
    at = labels[..., None]
    logs = logits.log_softmax(-1)
    losses = logs.gather(-1, at)[..., 0].mean(-1).neg_()
    pull = absent(x)
    if attraction is not None:
        index = at.expand(*labels.shape, x.shape[-1])  # the label's row for each string
        apart = z - weight.gather(1, index)
        gate = margins(products, labels)
        pull = (gate * apart.square().sum(-1)).mean(-1)
        losses.add_(attraction * pull)
    correct = (logits.argmax(-1) == labels).sum(-1)
    if not wanted:
        return losses, correct, *(absent(x) for _ in range(5)), pull

    # From here on all that is named g_ is the gradient of the loss.
    g_products = logs.exp_()
    g_products.scatter_add_(-1, at, g_products.new_full((1, 1, 1), -1).expand(at.shape))
    g_products.mul_((1 if scale is None else scale[:, None, None]) / labels.shape[-1])
    g_rows, g_h = torch.bmm(g_products.mT, h), torch.bmm(g_products, rows)
    if cosine:  # along a direction nothing changes
        g_rows = g_rows.sub_(rows * (rows * g_rows).sum(-1, keepdim=True)).mul_(c_inverse)
        g_h = g_h.sub_(h * (h * g_h).sum(-1, keepdim=True)).mul_(h_inverse)
    if attraction is not None:
        g_apart = apart.mul_((gate * (2 / labels.shape[-1] * attraction)[:, None])[..., None])
        g_h.add_(g_apart)
        g_rows.scatter_add_(1, index, g_apart.neg())
    g_bias = absent(x) if bias is None else g_products.sum(-2)
    g_gain = absent(x) if gain is None else (g_h * normed).sum(-2)
    g_shift = absent(x) if shift is None else g_h.sum(-2)
    if gain is not None:
        g_h = g_h * gain[:, None]
    if norm:
        g_h = torch.ops.aten.native_layer_norm_backward(
            g_h, x, x.shape[-1:], mean, rstd, None, None, (True, False, False)
        )[0]
    return losses, correct, g_h, g_rows, g_bias, g_gain, g_shift, pull


def backward(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """The gradients that `forward` kept, times what arrives at the loss, (R,); labels and scale have none."""
    kept: Sequence[Tensor] = rest[-9:-3]  # the three settings stand last
    found = [one * grad.view(-1, *(1,) * (one.dim() - 1)) if one.numel() else one for one in kept]
    return tuple(found)
