# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The positions of each symbol, as lists: a sum over the positions of a symbol then visits no others."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.padding import next_power_of_two

#: Positions that a program reads at a time, and its warps.
BLOCK, WARPS = 1024, 4


@triton.jit(do_not_specialize=["positions", "L", "V"])
def symbol_order_kernel(tokens, lengths, order, counts, positions, L, V, BLOCK: tl.constexpr):
    """Store the positions of one symbol of one replica, in ascending order, and their number."""
    replica_symbol = tl.program_id(0).to(tl.int64)
    replica = replica_symbol // V
    symbol = replica_symbol % V
    order += replica_symbol * positions
    found = 0
    for first in range(0, positions, BLOCK):
        place = first + tl.arange(0, BLOCK)
        token = tl.load(tokens + replica * positions + place, mask=place < positions, other=-1)
        matches = token == symbol
        if lengths is not None:
            row = replica * (positions // L) + place // L
            matches = matches & (place % L < tl.load(lengths + row, mask=place < positions, other=0))
        rank = tl.cumsum(matches.to(tl.int32), axis=0)
        tl.store(order + found + rank - 1, place, mask=matches)
        found += tl.sum(matches.to(tl.int32), axis=0)
    tl.store(counts + replica_symbol, found)


def symbol_order(tokens: Tensor, lengths: Tensor | None, V: int) -> tuple[Tensor, Tensor]:
    """Return the positions of each symbol within the lengths of the rows, (R, V, B * L), and their number, (R, V).

    tokens (R, B, L), lengths (R, B); a position is b * L + t. Entries past the number of positions are undefined.
    """
    R, B, L = tokens.shape
    order = tokens.new_empty((R, V, B * L), dtype=torch.int32)
    counts = tokens.new_empty((R, V), dtype=torch.int32)
    block = min(BLOCK, next_power_of_two(B * L))
    symbol_order_kernel[(R * V,)](tokens, lengths, order, counts, B * L, L, V, BLOCK=block, num_warps=WARPS)
    return order, counts
