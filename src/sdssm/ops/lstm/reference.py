"""LSTM scan as a plain loop over time."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.reference import loop


def step(W: Tensor, drive: Tensor, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next state and cell for W (..., 4N, N), drive (..., B, 4N), x and c (..., B, N)."""
    i, f, g, o = (x @ W.mT + drive).chunk(4, dim=-1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def scan(W: Tensor, drive: Tensor, x0: Tensor, c0: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return all states (..., B, L, N), the last state and the last cell (..., B, N).

    W (..., 4N, N), drive (..., B, L, 4N), x0 and c0 (..., B, N), lengths (..., B).
    """

    def step_at(t: int, state_and_cell: Tensor) -> Tensor:
        return torch.cat(step(W, drive[..., t, :], *state_and_cell.chunk(2, dim=-1)), dim=-1)

    states, final = loop(step_at, torch.cat([x0, c0], dim=-1), drive.shape[-2], lengths, rescale=False)
    last_state, last_cell = final.chunk(2, dim=-1)
    return states.chunk(2, dim=-1)[0], last_state, last_cell
