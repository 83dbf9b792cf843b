"""LSTM scan as a plain loop."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.reference import loop


def step(W: Tensor, drive: Tensor, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The next state and cell for W (..., 4N, N), drive (..., B, 4N), x and c (..., B, N)."""
    i, f, g, o = (x @ W.mT + drive).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def scan(W: Tensor, drive: Tensor, x0: Tensor, c0: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """All states, the last one and the last cell for drive (..., B, L, 4N), from x0 and c0 (..., B, N)."""

    def at(t: int, both: Tensor) -> Tensor:
        return torch.cat(step(W, drive[..., t, :], *both.chunk(2, dim=-1)), dim=-1)

    states, final = loop(at, torch.cat([x0, c0], dim=-1), drive.shape[-2], lengths, rescale=False)
    last, cell = final.chunk(2, dim=-1)
    return states.chunk(2, dim=-1)[0], last, cell
