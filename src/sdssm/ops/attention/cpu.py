"""Attention with rotary positions on the CPU: products of all rows and heads at once."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.attention.reference import select_end
from sdssm.ops.attention.rotation import rotation_table


def forward(
    qkv: Tensor, positions: Tensor, lengths: Tensor | None, causal: bool, end: bool, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return y (N, T, H, S), rotated queries (N, H, T, S) and keys (N, H, L, S), and weights (N, H, T, L).

    qkv (N, L, 3, H, S), positions (N, L), lengths (N,). T is L, or 1 with `end`. Queries and keys are divided by
    S^(1/4).
    """
    L = qkv.shape[1]
    rotation, pairs = rotations(qkv, positions, count), pairs_of(qkv)
    q, k = (rotated_heads(pairs[:, :, part], rotation) for part in (0, 1))
    if end:
        q = select_end(q.transpose(1, 2), lengths).transpose(1, 2).contiguous()
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
    rotation, pairs = rotations(qkv, positions, count).conj_physical(), pairs_of(dqkv)
    dq, dk = pairs_of(dscores @ k).transpose(1, 2), pairs_of(dscores.mT @ q).transpose(1, 2)
    torch.mul(dk, rotation, out=pairs[:, :, 1])
    if not end:
        torch.mul(dq, rotation, out=pairs[:, :, 0])
        return (dqkv,)
    rows = torch.arange(len(qkv))
    ends = torch.full_like(rows, qkv.shape[1] - 1) if lengths is None else (lengths - 1).clamp(min=0)
    pairs[rows, ends, 0] = dq[:, 0] * rotation.expand(len(qkv), -1, -1, -1)[rows, ends]
    return (dqkv,)


def rotations(qkv: Tensor, positions: Tensor, count: int) -> Tensor:
    """Return the rotations of pairs of queries and keys, divided by S^(1/4), complex (N, L, 1, S / 2)."""
    size = qkv.shape[-1]
    cos, sin = (rotation_table(qkv, count, size)[:, positions] * size**-0.25)[:, :, :, None].unbind(0)
    return torch.complex(cos, sin)


def rotated_heads(pairs: Tensor, rotation: Tensor) -> Tensor:
    """Return the rotated pairs (N, L, H, S / 2) as real vectors of each head, (N, H, L, S)."""
    N, L, H, half = pairs.shape
    out = rotation.real.new_empty(N, H, L, half, 2)
    torch.mul(pairs.transpose(1, 2), rotation.transpose(1, 2), out=torch.view_as_complex(out))
    return out.flatten(-2)


def pairs_of(x: Tensor) -> Tensor:
    """Return the adjacent pairs of a contiguous tensor (..., S) as complex numbers (..., S / 2) in the same memory."""
    return torch.view_as_complex(x.view(*x.shape[:-1], x.shape[-1] // 2, 2))
