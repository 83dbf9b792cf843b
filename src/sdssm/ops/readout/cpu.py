"""Readout and loss on the CPU: the forward pass computes the gradients as well.

The gradient that reaches the loss is one number per replica, by which `backward` multiplies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.readout.reference import EPSILON, centre_variance_gradient, margins


def inverse_norms(v: Tensor) -> Tensor:
    """Return 1 / ||v||_2 of each row, 0 for a row of zeros: (..., N) -> (..., 1)."""
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
    projection: Tensor | None,
    classes: Tensor | None,
    norm: bool,
    cosine: bool,
    unit: bool,
    exact_gradient: bool,
    with_gradients: bool,
) -> tuple[Tensor, ...]:
    """Return loss (R,), correct (R,) and the gradients of x, weight, bias, gain, shift, attraction and projection.

    The gradients are empty unless `with_gradients`, and for arguments that are None. x (R, B, N), weight (R, C, N),
    bias and classes (R, C), gain and shift (R, N), labels (R, B), scale and attraction (R,), projection (R, N, N).
    """
    normed, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], None, None, EPSILON) if norm else (x, x, x)
    h = normed if gain is None else normed * gain[:, None]
    h = h if shift is None else h + shift[:, None]
    unprojected, factor = h, x.shape[-1] ** -0.5 if unit else 1.0
    if projection is not None:
        h = torch.baddbmm(h, h, projection, beta=factor, alpha=factor)
    elif unit:
        h = h * factor
    z = h
    if cosine:
        h_inverse, c_inverse = inverse_norms(h), inverse_norms(weight)
        h, rows = h * h_inverse, weight * c_inverse
    else:
        rows = weight
    products = torch.bmm(h, rows.mT) if bias is None else torch.baddbmm(bias[:, None], h, rows.mT)  # (R, B, C)
    logits = products if scale is None else products * scale[:, None, None]
    index = labels[..., None]
    log_probabilities = logits.log_softmax(-1)
    label_losses = log_probabilities.gather(-1, index)[..., 0].neg_()
    if exact_gradient:
        rest = log_probabilities.exp().scatter_(-1, index, 0).sum(-1)  # 1 - p of the label's probability p, (R, B)
        label_losses = torch.where(rest < 0.5, rest.neg().log1p().neg_(), label_losses)
    losses = label_losses.mean(-1)
    g_attraction = empty_placeholder(x)
    if attraction is not None:
        strength = attraction
        if classes is not None:
            variance, g_variance = centre_variance_gradient(weight, classes)
            strength = attraction / variance
        centre_index = index.expand(*labels.shape, x.shape[-1])  # the row of `weight` of each label
        difference = z - weight.gather(1, centre_index)
        gate = margins(products, labels)
        centre_loss = (gate * difference.square().sum(-1)).mean(-1)
        losses.add_(strength * centre_loss)
        g_attraction = centre_loss if classes is None else centre_loss / variance
    correct = (logits.argmax(-1) == labels).sum(-1)
    if not with_gradients:
        return losses, correct, *(empty_placeholder(x) for _ in range(5)), g_attraction, empty_placeholder(x)

    # g_<name> is the gradient of the loss with respect to <name>.
    g_products = log_probabilities.exp_()
    if exact_gradient:
        g_products.scatter_(-1, index, rest.neg()[..., None])
    else:
        g_products.scatter_add_(-1, index, g_products.new_full((1, 1, 1), -1).expand(index.shape))
    g_products.mul_((1 if scale is None else scale[:, None, None]) / labels.shape[-1])
    g_rows, g_h = torch.bmm(g_products.mT, h), torch.bmm(g_products, rows)
    if cosine:  # a cosine does not change with the length of a vector
        g_rows = g_rows.sub_(rows * (rows * g_rows).sum(-1, keepdim=True)).mul_(c_inverse)
        g_h = g_h.sub_(h * (h * g_h).sum(-1, keepdim=True)).mul_(h_inverse)
    if attraction is not None:
        g_difference = difference.mul_((gate * (2 / labels.shape[-1] * strength)[:, None])[..., None])
        g_h.add_(g_difference)
        g_rows.scatter_add_(1, centre_index, g_difference.neg())
        if classes is not None:  # the strength is attraction / variance
            g_rows.sub_(g_variance.mul_((strength * g_attraction)[:, None, None]))
    if unit:
        g_h.mul_(factor)
    g_projection = empty_placeholder(x)
    if projection is not None:
        g_projection = torch.bmm(unprojected.mT, g_h)
        g_h = torch.baddbmm(g_h, g_h, projection.mT)
    g_bias = empty_placeholder(x) if bias is None else g_products.sum(-2)
    g_gain = empty_placeholder(x) if gain is None else (g_h * normed).sum(-2)
    g_shift = empty_placeholder(x) if shift is None else g_h.sum(-2)
    if gain is not None:
        g_h = g_h * gain[:, None]
    if norm:
        g_h = torch.ops.aten.native_layer_norm_backward(
            g_h, x, x.shape[-1:], mean, rstd, None, None, (True, False, False)
        )[0]
    return losses, correct, g_h, g_rows, g_bias, g_gain, g_shift, g_attraction, g_projection


def backward(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Multiply the gradients that `forward` saved by the gradient of the loss, (R,)."""
    saved: Sequence[Tensor] = rest[-12:-5]  # the last five are the settings
    return tuple(
        gradient * grad.view(-1, *(1,) * (gradient.dim() - 1)) if gradient.numel() else gradient for gradient in saved
    )
