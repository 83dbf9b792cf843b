"""Two gated convolutions at the end of strings, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.reversed_rows import select_reversed_rows


def gated_end(
    table: Tensor,
    first: Tensor,
    first_skip: Tensor,
    second: Tensor,
    second_skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
) -> Tensor:
    """Return y (B, D), see `sdssm.ops.gated.gated_end`."""
    length = tokens.shape[1]
    rows, _ = select_reversed_rows(table, tokens, lengths)
    q, k, v = rows.chunk(3, -1)  # (B, L, D)
    filtered = first_skip * k
    for delay in range(min(first.shape[1], length)):
        earlier = torch.nn.functional.pad(k[:, delay:], (0, 0, 0, delay))
        filtered = filtered + first[:, delay] * earlier
    gated = filtered * v
    taps = min(second.shape[1], length)
    return q[:, 0] * ((second.mT[:taps] * gated[:, :taps]).sum(1) + second_skip * gated[:, 0])
