"""Attention with rotary positions in plain torch, differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.attention.rotation import rotation_table


def attend(
    qkv: Tensor, positions: Tensor, lengths: Tensor | None, causal: bool, end: bool, count: int
) -> tuple[Tensor]:
    """Return y (..., L, H, S) for qkv (..., L, 3, H, S), positions (..., L), lengths (...)."""
    length, size = qkv.shape[-4], qkv.shape[-1]
    q, k = rotate_by_positions(qkv, positions, count)
    v = qkv[..., 2, :, :]
    scores = torch.einsum("...thd,...shd->...hts", q, k) * size**-0.5
    steps = torch.arange(length, device=qkv.device)
    past = None if lengths is None else steps >= lengths[..., None]
    if causal:
        scores = scores.masked_fill(steps > steps[:, None], -torch.inf)
    if past is not None:  # the first key stays, so that a row of length zero is not NaN
        scores = scores.masked_fill((past & (steps > 0))[..., None, None, :], -torch.inf)
    y = torch.einsum("...hts,...shd->...thd", torch.softmax(scores, -1), v)
    y = y if past is None else y.masked_fill(past[..., None, None], 0.0)
    return (select_end(y, lengths) if end else y,)


def select_end(y: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the entries at the end of each row, or the first ones of empty rows: (..., L, H, S) -> (..., 1, H, S)."""
    if lengths is None:
        return y[..., -1:, :, :]
    index = (lengths - 1).clamp(min=0)[..., None, None, None].expand(*y.shape[:-3], 1, *y.shape[-2:])
    return y.gather(-3, index)


def rotate_by_positions(qkv: Tensor, positions: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the rotated queries and keys, both (..., L, H, S)."""
    cos, sin = rotation_table(qkv, count, qkv.shape[-1])[:, positions][..., None, :].unbind(0)  # (..., L, 1, S / 2)
    return rotate(qkv[..., 0, :, :], cos, sin), rotate(qkv[..., 1, :, :], cos, sin)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the adjacent pairs of x (..., S) by angles with this cosine and sine (..., S / 2)."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
