"""Readout and loss in plain torch, with gradients by autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.label_losses import cross_entropy

#: The number that LayerNorm adds to the variance, the default of torch.
EPSILON = 1e-5
#: The least variance of the class centres that the centre loss is divided by.
SMALLEST_VARIANCE = 1e-12


def directions(v: Tensor) -> Tensor:
    """Return v / ||v||_2; a zero vector stays zero and has no gradient."""
    norm = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return v * torch.where(norm == 0, 0, 1 / torch.where(norm == 0, 1, norm))


def margins(cosines: Tensor, labels: Tensor) -> Tensor:
    """Return the margin of the label's cosine over the best other one, clamped to 0..1.

    cosines (..., B, C), labels (..., B) -> (..., B).
    """
    index = labels[..., None]
    others = cosines.scatter(-1, index, -torch.inf).amax(-1)
    return (cosines.gather(-1, index)[..., 0] - others).clamp(0, 1)


def loss_and_correct(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    shift: Tensor | None,
    scale: Tensor | None,
    attraction: Tensor | None,
    *,
    norm: bool,
    cosine: bool,
    exact_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Return the mean loss (...) and the number of correctly classified states (...).

    x (..., B, N), weight (..., C, N), labels (..., B), bias (..., C), gain and shift (..., N), scale and
    attraction (...).
    """
    h = functional.layer_norm(x, x.shape[-1:], eps=EPSILON) if norm else x
    if gain is not None:
        h = h * gain[..., None, :]
    if shift is not None:
        h = h + shift[..., None, :]
    logits = cosines = directions(h) @ directions(weight).mT if cosine else h @ weight.mT  # (..., B, C)
    if bias is not None:
        logits = logits + bias[..., None, :]
    if scale is not None:
        logits = logits * scale[..., None, None]
    loss = cross_entropy(logits, labels, exact_gradient=exact_gradient)
    if attraction is not None:
        index = labels[..., None]
        rows = weight.expand(*labels.shape[:-1], *weight.shape[-2:])
        centres = rows.gather(-2, index.expand(*labels.shape, rows.shape[-1]))  # (..., B, N)
        centre_losses = margins(cosines.detach(), labels) * (h - centres).square().sum(-1)
        loss = loss + attraction * centre_losses.mean(-1)
    return loss, (logits.argmax(-1) == labels).sum(-1)


def features(
    x: Tensor, gain: Tensor | None, shift: Tensor | None, projection: Tensor | None, *, norm: bool, unit: bool
) -> Tensor:
    """Return the features z (..., B, N) of states x: LayerNorm, projection, and division by sqrt(N) with `unit`."""
    h = x
    if norm and all(vector is None or vector.dim() == 1 for vector in (gain, shift)):
        h = functional.layer_norm(x, x.shape[-1:], gain, shift, EPSILON)
    elif norm:
        h = functional.layer_norm(x, x.shape[-1:], eps=EPSILON)
        h = h if gain is None else h * gain[..., None, :]
        h = h if shift is None else h + shift[..., None, :]
    if projection is not None:
        h = h + h @ projection
    return h * x.shape[-1] ** -0.5 if unit else h


def centre_variance(weight: Tensor, classes: Tensor) -> Tensor:
    """Return the mean squared distance of the rows of `weight` (..., C, N) from their mean, weighted by `classes`."""
    share = (classes / classes.sum(-1, keepdim=True))[..., None]
    mean = (share * weight).sum(-2, keepdim=True)
    return (share * (weight - mean).square()).sum((-2, -1)).clamp(min=SMALLEST_VARIANCE)


def centre_variance_gradient(weight: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return `centre_variance` (...) and its gradient with respect to weight, (..., C, N).

    The gradient through the mean is zero, since the weighted distances from it add up to zero.
    """
    share = (classes / classes.sum(-1, keepdim=True))[..., None]
    difference = weight - (share * weight).sum(-2, keepdim=True)
    weighted = share * difference
    variance = (weighted * difference).sum((-2, -1))
    is_constant = variance < SMALLEST_VARIANCE
    gradient = weighted.mul_(2).masked_fill_(is_constant[..., None, None], 0)
    return variance.clamp_(min=SMALLEST_VARIANCE), gradient
