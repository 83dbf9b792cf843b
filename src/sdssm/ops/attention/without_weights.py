"""Attention with rotary positions by torch's fused attention, which does not store L x L weights.

It is used without gradients: on a CPU fused attention runs replicas one by one, and on a GPU its gradients are not
deterministic.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.attention.reference import rotate_by_positions, select_end


def attend(
    qkv: Tensor, positions: Tensor, lengths: Tensor | None, causal: bool, end: bool, count: int
) -> tuple[Tensor]:
    """Return y (..., L, H, S) for qkv (..., L, 3, H, S), positions (..., L), lengths (...)."""
    q, k, v = (x.transpose(-3, -2) for x in (*rotate_by_positions(qkv, positions, count), qkv[..., 2, :, :]))
    steps = torch.arange(qkv.shape[-4], device=qkv.device)
    past = None if lengths is None else steps >= lengths[..., None]
    mask = None
    if past is not None:  # the first key stays, so that a row of length zero is not NaN
        mask = ~(past & (steps > 0))[..., None, None, :]
    if causal:
        earlier = steps <= steps[:, None]
        mask = earlier if mask is None else mask & earlier
    y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(-3, -2)
    y = y if past is None else y.masked_fill(past[..., None, None], 0.0)
    return (select_end(y, lengths) if end else y,)
