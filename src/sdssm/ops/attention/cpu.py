"""Attention with rotary positions on the CPU: products of all rows and heads at once."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.attention.reference import rotate, select_end
from sdssm.ops.attention.rotation import rotation_table


def forward(
    qkv: Tensor, positions: Tensor, lengths: Tensor | None, causal: bool, end: bool, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return y (N, T, H, S), rotated queries (N, H, T, S) and keys (N, H, L, S), and weights (N, H, T, L).

    qkv (N, L, 3, H, S), positions (N, L), lengths (N,). T is L, or 1 with `end`. Queries and keys are divided by
    S^(1/4).
    """
    L = qkv.shape[1]
    cos, sin = factors(qkv, positions, count)
    q, k = rotate(qkv[:, :, :2], cos, sin).unbind(2)
    q = (select_end(q, lengths) if end else q).transpose(1, 2).contiguous()
    k = k.transpose(1, 2).contiguous()
    scores = q @ k.mT
    steps = torch.arange(L)
    if causal and not end:
        scores.masked_fill_(steps > steps[:, None], -torch.inf)
    past = None if lengths is None else steps >= lengths[:, None]
    if past is not None:  # the first key stays, so that a row of length zero is not NaN
        scores.masked_fill_((past & (steps > 0))[:, None, None], -torch.inf)
    weights = torch.softmax(scores, -1)
    if past is not None:
        weights.masked_fill_((past[:, :1] if end else past)[:, None, :, None], 0.0)
    y = (weights @ qkv[:, :, 2].transpose(1, 2)).transpose(1, 2).contiguous()
    return y, q, k, weights


def backward(
    grad: Tensor, qkv: Tensor, positions: Tensor, lengths: Tensor | None,
    y: Tensor, q: Tensor, k: Tensor, weights: Tensor, causal: bool, end: bool, count: int,
) -> tuple[Tensor]:  # fmt: skip
    """Return the gradient of qkv."""
    dy, v = grad.transpose(1, 2), qkv[:, :, 2].transpose(1, 2)
    dqkv = torch.zeros_like(qkv) if end else torch.empty_like(qkv)
    dqkv[:, :, 2] = (weights.mT @ dy).transpose(1, 2)
    dscores = torch.ops.aten._softmax_backward_data(dy @ v.mT, weights, -1, qkv.dtype)
    cos, sin = (factor[:, :, 0] for factor in factors(qkv, positions, count))
    dqkv[:, :, 1] = rotate((dscores.mT @ q).transpose(1, 2), cos, -sin)
    dq = (dscores @ k).transpose(1, 2)
    if not end:
        dqkv[:, :, 0] = rotate(dq, cos, -sin)
        return (dqkv,)
    rows = torch.arange(len(qkv))
    ends = torch.full_like(rows, qkv.shape[1] - 1) if lengths is None else (lengths - 1).clamp(min=0)
    dqkv[rows, ends, 0] = rotate(dq[:, 0], cos[rows, ends], -sin[rows, ends])
    return (dqkv,)


def factors(qkv: Tensor, positions: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return cosine and sine for queries and keys, divided by S^(1/4), (N, L, 1, 1, S / 2)."""
    size = qkv.shape[-1]
    cos, sin = (rotation_table(qkv, count, size)[:, positions] * size**-0.25)[:, :, :, None, None].unbind(0)
    return cos, sin
