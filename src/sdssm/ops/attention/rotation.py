"""The rotations of rotary positions, for all positions."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.tables import cached_table

#: Pair i of a head of size S is rotated by position * BASE^(-2i / S).
BASE = 10_000.0


def frequencies(size: int) -> Tensor:
    """Return the angle between consecutive positions for each pair of a head of size S, (S / 2,)."""
    return BASE ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)


@cached_table
def rotation_table(count: int, size: int) -> Tensor:
    """Return cosine and sine of the angles of positions 0..count, (2, count + 1, S / 2)."""
    angles = torch.arange(count + 1, dtype=torch.float64)[:, None] * frequencies(size)
    return torch.stack([angles.cos(), angles.sin()])
