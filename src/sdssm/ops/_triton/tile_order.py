# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The order in which tiles of rows with different lengths start: those with the longest rows first.

A GPU starts the programs of a kernel in the order of their numbers, and the next one when one has ended. If a long tile
starts last, the GPU waits for it alone. So the rows of a group are sorted by length, TB of them are a tile, and the
tiles of many groups are sorted by their longest rows. Both sorts are one kernel, since lengths are in device memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.padding import next_power_of_two

#: The most rows of a replica that are a group.
GROUP_ROWS = 128
#: Groups whose tiles are sorted together, several times as many as a GPU runs at once; the next so many groups follow
#: them. Every program reads the lengths of all these groups.
GROUPS_TOGETHER = 256
#: Groups that a program reads at a time, and its warps.
GROUPS_AT_ONCE, WARPS = 16, 8


@triton.jit
def rows_of_group(group, string, groups, B, groups_each, GROUP: tl.constexpr):
    """Return the rows of strings of a group, -1 for those that do not exist."""
    place = group % groups_each * GROUP + string
    return tl.where((place < B) & (group < groups), group // groups_each * B + place, -1)


@triton.jit
def lengths_of_rows(lengths, row):
    """Load the lengths of rows, -1 for those that do not exist."""
    return tl.load(lengths + row, mask=row >= 0, other=-1).to(tl.int32)


@triton.jit(do_not_specialize=["groups", "B", "groups_each"])
def tile_order_kernel(
    lengths, order, groups, B, groups_each,
    GROUP: tl.constexpr, TB: tl.constexpr, TOGETHER: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Store the rows of one group at their places in the order.

    The place of a tile is the number of tiles that start before it. A group with r rows longer than some length has
    r / TB tiles, rounded up, whose longest row is longer.
    """
    group = tl.program_id(0)
    string = tl.arange(0, GROUP)
    steps = lengths_of_rows(lengths, rows_of_group(group, string, groups, B, groups_each, GROUP))
    key = tl.sort((steps + 1) * GROUP + GROUP - 1 - string, descending=True)  # none is negative, and no two are equal
    key = tl.reshape(key, (GROUP // TB, TB))
    longest = tl.max(key, axis=1) // GROUP - 1

    first = group // TOGETHER * TOGETHER
    end = tl.minimum(first + TOGETHER, groups)
    earlier = tl.arange(0, GROUP // TB)  # of the same group
    for start in range(first, end, AT_ONCE):
        other = start + tl.arange(0, AT_ONCE)
        row = rows_of_group(other[:, None], string[None, :], groups, B, groups_each, GROUP)
        others = lengths_of_rows(lengths, row)
        others += (other < group).to(tl.int32)[:, None]  # of equally long tiles that of the first group starts first
        longer = tl.sum((others[None, :, :] > longest[:, None, None]).to(tl.int32), axis=2)
        counts = ((other != group) & (other < end))[None, :]
        earlier += tl.sum(tl.where(counts, (longer + TB - 1) // TB, 0), axis=1)

    place = (first * (GROUP // TB) + earlier[:, None]) * TB + tl.arange(0, TB)[None, :]
    tl.store(order + place, rows_of_group(group, GROUP - 1 - key % GROUP, groups, B, groups_each, GROUP))


def order_tiles(lengths: Tensor, tile_rows: int) -> Tensor:
    """Return the rows of all tiles in the order in which they start, (tiles, tile_rows), for lengths (R, B).

    Row b of replica r is r * B + b, in 32-bit integers. A tile has rows of one replica; -1 is in place of rows that do
    not exist. tile_rows is a power of two.
    """
    R, B = lengths.shape
    group = min(GROUP_ROWS, max(tile_rows, next_power_of_two(B)))
    groups_each = triton.cdiv(B, group)
    groups = R * groups_each
    order = lengths.new_empty((groups * (group // tile_rows), tile_rows), dtype=torch.int32)
    tile_order_kernel[(groups,)](
        lengths, order, groups, B, groups_each,
        GROUP=group, TB=tile_rows, TOGETHER=GROUPS_TOGETHER, AT_ONCE=GROUPS_AT_ONCE, num_warps=WARPS,
    )  # fmt: skip
    return order
