"""A gated convolution after a short one, at the end of strings, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.reversed_rows import select_reversed_rows


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
    rows, inside = select_reversed_rows(table, tokens, lengths)  # (B, L, 3 D)
    filtered = bias
    for delay in range(min(taps, length)):
        filtered = filtered + weight[:, taps - 1 - delay] * functional.pad(rows[:, delay:], (0, 0, 0, delay))
    x1, x2, v = torch.where(inside, filtered, filtered.new_zeros(())).chunk(3, -1)
    gated = x2 * v
    count = min(kernel.shape[1], length)
    return x1[:, 0] * ((kernel.mT[:count] * gated[:, :count]).sum(1) + skip * gated[:, 0])
