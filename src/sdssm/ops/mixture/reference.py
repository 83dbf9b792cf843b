"""Mixture scan as a plain loop: the published way, mix, normalise and multiply at each step."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.norms import column_norms
from sdssm.ops.reference import loop


def step(dictionary: Tensor, weights: Tensor, b: Tensor | None, x: Tensor, p: float | Tensor | None) -> Tensor:
    """A x + b for dictionary (..., K, N, N), weights (..., B, K), x (..., B, N), p a number or tensor (...)."""
    mixed = torch.einsum("...bk,...kij->...bij", weights, dictionary)
    if p is not None:
        per_row = p[..., None] if isinstance(p, Tensor) else p
        mixed = mixed / column_norms(mixed, per_row)[..., None, :]
    z = (mixed @ x[..., None])[..., 0]
    return z if b is None else z + b


def scan(
    dictionary: Tensor,
    weights: Tensor,
    b: Tensor | None,
    x0: Tensor,
    p: float | Tensor | None,
    lengths: Tensor | None,
    *,
    rescale: bool,
) -> tuple[Tensor, Tensor]:
    """x_t = A_t x_{t-1} + b_t for weights (..., B, L, K), from x0 (..., B, N)."""

    def at(t: int, x: Tensor) -> Tensor:
        return step(dictionary, weights[..., t, :], None if b is None else b[..., t, :], x, p)

    return loop(at, x0, weights.shape[-2], lengths, rescale)
