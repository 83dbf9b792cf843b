"""The delta rule as a plain loop, with torch's own gradients."""

from __future__ import annotations

import torch
from torch import Tensor


def step(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S: Tensor) -> tuple[Tensor, Tensor]:
    """One position: q (..., H, Dk), k (..., n, H, Dk), v (..., n, H, Dv), beta (..., n, H), gate (..., H) -> o, S."""
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
    """`step` at every position, from S (..., H, Dv, Dk): outputs (..., L, H, Dv) and the last S."""
    outputs = []
    for t in range(q.shape[-3]):
        here = slice(t * steps, (t + 1) * steps)
        o, after = step(
            q[..., t, :, :],
            k[..., here, :, :],
            v[..., here, :, :],
            beta[..., here, :],
            None if gate is None else gate[..., t, :],
            S,
        )
        if lengths is not None:
            inside = (t < lengths)[..., None, None]
            o = torch.where(inside, o, 0)
            after = torch.where(inside[..., None], after, S)
        outputs.append(o)
        S = after
    return torch.stack(outputs, -3), S
