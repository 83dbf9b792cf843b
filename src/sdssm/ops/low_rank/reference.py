"""The kernel of a diagonal plus low-rank system as a plain loop over time."""

from __future__ import annotations

import torch
from torch import Tensor


def taps(log_dt: Tensor, log_decay: Tensor, frequency: Tensor, P: Tensor, B: Tensor, C: Tensor, length: int) -> Tensor:
    """Return K (D, length), see `low_rank_taps`."""
    h = log_dt.exp()[:, None] / 2
    eigenvalues = torch.complex(-log_decay.exp(), frequency)
    low_rank, inputs, outputs = (torch.complex(pair[0], pair[1]) for pair in (P, B, C))

    def project(x: Tensor) -> Tensor:  # P^* x
        return 2 * (low_rank.conj() * x).real.sum(-1, keepdim=True)

    def solve(x: Tensor) -> Tensor:  # (I - h A)^{-1} x, by Woodbury's formula
        shrink = (1 - h * eigenvalues).reciprocal()
        return shrink * (x - h * low_rank * project(shrink * x) / (1 + h * project(shrink * low_rank)))

    x, values = solve(2 * h * inputs), list[Tensor]()
    for _ in range(length):
        values.append(2 * (outputs * x).real.sum(-1))
        x = solve(x + h * (eigenvalues * x - low_rank * project(x)))
    return torch.stack(values, -1) if values else log_dt.new_zeros(len(log_dt), 0)
