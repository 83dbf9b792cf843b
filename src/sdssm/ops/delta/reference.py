"""The delta rule as a plain loop over positions, differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor


def step(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output of one position and the next S.

    q (..., H, Dk), k (..., n, H, Dk), v (..., n, H, Dv), beta (..., n, H), gate (..., H), S (..., H, Dv, Dk).
    """
    if gate is not None:
        S = gate[..., None, None] * S
    for i in range(k.shape[-3]):
        key, value, strength = k[..., i, :, :], v[..., i, :, :], beta[..., i, :, None]
        error = value - (S @ key[..., None])[..., 0]  # (..., H, Dv)
        S = S + (strength * error)[..., None] * key[..., None, :]
    return (S @ q[..., None])[..., 0], S


def scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S: Tensor,
    lengths: Tensor | None,
    steps: int,
) -> tuple[Tensor, Tensor]:
    """Apply `step` at every position, from S (..., H, Dv, Dk): outputs (..., L, H, Dv) and the last S."""
    outputs = []
    for t in range(q.shape[-3]):
        position = slice(t * steps, (t + 1) * steps)
        output, next_S = step(
            q[..., t, :, :],
            k[..., position, :, :],
            v[..., position, :, :],
            beta[..., position, :],
            None if gate is None else gate[..., t, :],
            S,
        )
        if lengths is not None:
            in_length = (t < lengths)[..., None, None]
            output = torch.where(in_length, output, 0)
            next_S = torch.where(in_length[..., None], next_S, S)
        outputs.append(output)
        S = next_S
    return torch.stack(outputs, -3), S
