"""Residual connection, dropout and LayerNorm in plain torch, differentiated by autograd."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def residual_norm(
    h: Tensor, x: Tensor, gain: Tensor, shift: Tensor, noise: Tensor | None, slot: int, rate: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return LayerNorm(z) and z = h + dropout(x), both (..., D). With noise (L, J, B, D) h and x are (B, L, D)."""
    z = h + drop(x, noise, slot, rate)
    return functional.layer_norm(z, z.shape[-1:], gain, shift, epsilon), z


def drop(x: Tensor, noise: Tensor | None, slot: int, rate: float) -> Tensor:
    """Return x (B, L, D) after dropout with noise (L, J, B, D); without noise x (..., D) itself."""
    return apply_dropout(x, rate, None if noise is None else noise[:, slot].transpose(0, 1))


def apply_dropout(x: Tensor, rate: float, noise: Tensor | None) -> Tensor:
    """Zero entries whose noise is below the rate, and divide the others by 1 - rate; None: return x."""
    return x if noise is None else x * (noise >= rate) / (1 - rate)
