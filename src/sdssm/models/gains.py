"""Gains: how much the matrix of each symbol of an SD-SSM stretches a state; see docs/explanation/gains.md."""

from __future__ import annotations

import torch
from torch import Tensor

#: Norms below this are taken for it, so that a state of zeros has finite gains.
SMALLEST_NORM = 1e-30


def log_gains(A: Tensor, states: Tensor) -> Tensor:
    """Return log(|A_a x| / |x|) for each symbol and state: A (V, N, N), states (B, N) -> (V, B).

    >>> log_gains(torch.diag(torch.tensor([1.0, 2.0]))[None], torch.eye(2)).exp().tolist()
    [[1.0, 2.0]]
    """
    after: Tensor = torch.linalg.vector_norm(states @ A.mT, dim=-1)
    before: Tensor = torch.linalg.vector_norm(states, dim=-1)
    return after.clamp(min=SMALLEST_NORM).log() - before.clamp(min=SMALLEST_NORM).log()


def gain_variance(A: Tensor, states: Tensor) -> Tensor:
    """Return the variance of the log gain over the states, averaged over the symbols: (V, N, N), (B, N) -> ().

    It is zero if each symbol stretches all states by the same factor, whatever the factor is.

    >>> round(float(gain_variance(torch.diag(torch.tensor([1.0, 2.0]))[None], torch.eye(2))), 4)  # (log(2) / 2)^2
    0.1201
    """
    return log_gains(A, states).var(-1, correction=0).mean()
