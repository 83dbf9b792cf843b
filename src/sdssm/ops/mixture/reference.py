"""The mixture scan as a plain loop, as published: mix, normalise and multiply at each step."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.norms import column_norms
from sdssm.ops.reference import loop


def step(dictionary: Tensor, weights: Tensor, b: Tensor | None, x: Tensor, p: float | Tensor | None) -> Tensor:
    """Return A x + b with A mixed and normalised.

    dictionary (..., K, N, N), weights (..., B, K), x (..., B, N), p a number, a tensor (...) or None.
    """
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
    """Compute x_t = A_t x_{t-1} + b_t for weights (..., B, L, K), from x0 (..., B, N)."""

    def step_at(t: int, x: Tensor) -> Tensor:
        return step(dictionary, weights[..., t, :], None if b is None else b[..., t, :], x, p)

    return loop(step_at, x0, weights.shape[-2], lengths, rescale)
