"""The token scan as a plain loop."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.reference import loop


def step(A: Tensor, b: Tensor | None, tokens: Tensor, x: Tensor) -> Tensor:
    """Return A[token] x + b[token].

    A (..., V, N, N), b (..., V, N), tokens (..., B), x (..., B, N) -> (..., B, N).
    """
    matrices = torch.take_along_dim(*spread(A, tokens[..., None, None]), dim=-3)  # (..., B, N, N)
    z = (matrices @ x[..., None])[..., 0]
    return z if b is None else z + torch.take_along_dim(*spread(b, tokens[..., None]), dim=-2)


def spread(table: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return both with the same number of dimensions, as take_along_dim requires."""
    while table.dim() < index.dim():
        table = table[None]
    while index.dim() < table.dim():
        index = index[None]
    return table, index


def scan(
    A: Tensor, b: Tensor | None, tokens: Tensor, x0: Tensor, lengths: Tensor | None, *, rescale: bool
) -> tuple[Tensor, Tensor]:
    """Compute x_t = A[token_t] x_{t-1} + b[token_t] for tokens (..., B, L), from x0 (..., B, N)."""

    def step_at(t: int, x: Tensor) -> Tensor:
        return step(A, b, tokens[..., t], x)

    return loop(step_at, x0, tokens.shape[-1], lengths, rescale)
