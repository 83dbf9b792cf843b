"""Readout and loss in plain torch, with torch's own gradients."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

#: What LayerNorm adds to the variance, as torch does.
EPSILON = 1e-5


def directions(v: Tensor) -> Tensor:
    """v / ||v||_2; a vector of zeros stays zero, and sends no gradient back."""
    norm = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return v * torch.where(norm == 0, 0, 1 / torch.where(norm == 0, 1, norm))


def margins(cosines: Tensor, labels: Tensor) -> Tensor:
    """How far the cosine of the label is above the best other one, within 0..1: (..., B, C) -> (..., B)."""
    at = labels[..., None]
    others = cosines.scatter(-1, at, -torch.inf).amax(-1)
    return (cosines.gather(-1, at)[..., 0] - others).clamp(0, 1)


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
) -> tuple[Tensor, Tensor]:
    """x (..., B, N), weight (..., C, N), labels (..., B) -> the mean loss (...) and how many are right (...).

    bias (..., C), gain and shift (..., N), scale and attraction (...).
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
    at = labels[..., None]
    losses = -logits.log_softmax(-1).gather(-1, at)[..., 0]
    loss = losses.mean(-1)
    if attraction is not None:
        rows = weight.expand(*labels.shape[:-1], *weight.shape[-2:])
        own = rows.gather(-2, at.expand(*labels.shape, rows.shape[-1]))  # (..., B, N)
        pull = margins(cosines.detach(), labels) * (h - own).square().sum(-1)
        loss = loss + attraction * pull.mean(-1)
    return loss, (logits.argmax(-1) == labels).sum(-1)
