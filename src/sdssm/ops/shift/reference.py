"""The kernel of a shift system in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def taps(B: Tensor, C: Tensor, length: int) -> Tensor:
    """Return K (D, length), see `shift_taps`."""
    N = B.shape[1]
    sums = [(C[:, delay:] * B[:, : max(N - delay, 0)]).sum(-1) for delay in range(length)]
    return torch.stack(sums, -1) if sums else B.new_zeros(len(B), 0)
