"""Normalised blocks in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

#: What blocks are divided by.
KINDS = ("largest", "columns")


def normalised_blocks(A: Tensor, p: float, by: str) -> tuple[Tensor]:
    """Return the normalised blocks (..., S, S)."""
    if by == "largest":
        A = A - A.mean(dim=-2, keepdim=True)
    # Its gradient at a column of zeros is zero, unlike that of (sum |a|^p)^(1/p).
    norms: Tensor = torch.linalg.vector_norm(A, ord=p, dim=-2, keepdim=True)
    if by == "columns":
        return (A / norms.clamp(min=1),)
    largest = norms.amax(dim=-1, keepdim=True)
    return (A / torch.where(largest == 0, 1, largest),)  # a block of zeros stays zero
