"""The column-one-hot scan as a plain loop over time with dense matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.reference import loop
from sdssm.ops.token.reference import spread


def hardened(P: Tensor) -> Tensor:
    """Return a matrix with a 1 at the largest entry of every column of P and zeros elsewhere.

    The gradient is straight-through: it is passed on to P unchanged.
    """
    rows = torch.arange(P.shape[-2], device=P.device)[:, None]
    hard = (rows == P.argmax(-2, keepdim=True)).to(P.dtype)
    return hard + (P - P.detach())


def step(P: Tensor, D: Tensor, x: Tensor, b: Tensor | None) -> Tensor:
    """Return hardened(P) (D * x) + b for P (..., N, N), D, x and b (..., N)."""
    z = (hardened(P).to(D.dtype) @ (D * x)[..., None])[..., 0]
    return z if b is None else z + b


def scan(
    P: Tensor, D: Tensor, tokens: Tensor | None, b: Tensor | None, x0: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return all states and the last ones, from x0 (..., N).

    P and D are indexed by tokens (..., B, L), or without tokens by the step.
    """

    def step_at(t: int, x: Tensor) -> Tensor:
        if tokens is None:
            P_t, D_t = P[..., t, :, :], D[..., t, :]
        else:
            index = tokens[..., t]  # (..., B)
            P_t = torch.take_along_dim(*spread(P, index[..., None, None]), dim=-3)
            D_t = torch.take_along_dim(*spread(D, index[..., None]), dim=-2)
        return step(P_t, D_t, x, None if b is None else b[..., t, :])

    return loop(step_at, x0, P.shape[-3] if tokens is None else tokens.shape[-1], lengths, rescale=False)
