"""A gated convolution after a short one, at the end of strings, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def window_end(
    table: Tensor,
    weight: Tensor,
    bias: Tensor,
    kernel: Tensor,
    skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
) -> Tensor:
    """Return y (B, D), see `sdssm.ops.windows.window_end`."""
    length, taps = tokens.shape[1], weight.shape[1]
    ends = torch.full_like(tokens[:, 0], length) if lengths is None else lengths
    places = ends[:, None] - 1 - torch.arange(length, device=tokens.device)
    inside = (places >= 0)[..., None]
    rows = table[tokens.gather(1, places.clamp(min=0))]
    rows = torch.where(inside, rows, rows.new_zeros(()))  # from the ends on, (B, L, 3 D)
    filtered = bias
    for delay in range(min(taps, length)):
        filtered = filtered + weight[:, taps - 1 - delay] * functional.pad(rows[:, delay:], (0, 0, 0, delay))
    x1, x2, v = torch.where(inside, filtered, filtered.new_zeros(())).chunk(3, -1)
    gated = x2 * v
    count = min(kernel.shape[1], length)
    return x1[:, 0] * ((kernel.mT[:count] * gated[:, :count]).sum(1) + skip * gated[:, 0])
