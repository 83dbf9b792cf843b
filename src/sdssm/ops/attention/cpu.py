"""Attention with rotary positions on the CPU: products of all rows and heads at once."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.attention.reference import rotate
from sdssm.ops.attention.rotation import rotation_table


def forward(
    qkv: Tensor, positions: Tensor, lengths: Tensor | None, causal: bool, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y (N, L, H, S), rotated queries and keys (2, N, H, L, S), and weights (N, H, L, L).

    qkv (N, L, 3, H, S), positions (N, L), lengths (N,). Queries and keys are divided by S^(1/4).
    """
    N, L, _, H, S = qkv.shape
    cos, sin = factors(qkv, positions, count)
    rotated = rotate(qkv[:, :, :2], cos, sin).permute(2, 0, 3, 1, 4).contiguous()
    scores = rotated[0] @ rotated[1].mT
    steps = torch.arange(L)
    if causal:
        scores.masked_fill_(steps > steps[:, None], -torch.inf)
    past = None if lengths is None else steps >= lengths[:, None]
    if past is not None:  # the first key stays, so that a row of length zero is not NaN
        scores.masked_fill_((past & (steps > 0))[:, None, None], -torch.inf)
    weights = torch.softmax(scores, -1)
    if past is not None:
        weights.masked_fill_(past[:, None, :, None], 0.0)
    y = (weights @ qkv[:, :, 2].transpose(1, 2)).transpose(1, 2).contiguous()
    return y, rotated.transpose(0, 1).contiguous(), weights


def backward(
    grad: Tensor, qkv: Tensor, positions: Tensor, lengths: Tensor | None,
    y: Tensor, rotated: Tensor, weights: Tensor, causal: bool, count: int,
) -> tuple[Tensor]:  # fmt: skip
    """Return the gradient of qkv."""
    q, k = rotated.unbind(1)
    dy, v = grad.transpose(1, 2), qkv[:, :, 2].transpose(1, 2)
    dqkv = torch.empty_like(qkv)
    dqkv[:, :, 2] = (weights.mT @ dy).transpose(1, 2)
    dscores = torch.ops.aten._softmax_backward_data(dy @ v.mT, weights, -1, qkv.dtype)
    gradients = torch.stack([dscores @ k, dscores.mT @ q], 1).permute(0, 3, 1, 2, 4)  # (N, L, 2, H, S)
    cos, sin = factors(qkv, positions, count)
    dqkv[:, :, :2] = rotate(gradients, cos, -sin)
    return (dqkv,)


def factors(qkv: Tensor, positions: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return cosine and sine for queries and keys, divided by S^(1/4), (N, L, 1, 1, S / 2)."""
    size = qkv.shape[-1]
    cos, sin = (rotation_table(qkv, count, size)[:, positions] * size**-0.25)[:, :, :, None, None].unbind(0)
    return cos, sin
