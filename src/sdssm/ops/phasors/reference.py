"""Complex numbers of a given absolute value, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_phasors(raw: Tensor, radius: float) -> tuple[Tensor]:
    """Return radius w / |w| (..., N, 2) for w = real + i imaginary with raw (..., 2 N) = [real, imaginary]."""
    real, imaginary = raw.chunk(2, dim=-1)
    zero = (real == 0) & (imaginary == 0)
    real, imaginary = torch.where(zero, 1, real), torch.where(zero, 0, imaginary)
    size = torch.hypot(real, imaginary)  # the squares neither overflow nor underflow
    return (torch.stack([real, imaginary], dim=-1) * (radius / size)[..., None],)
