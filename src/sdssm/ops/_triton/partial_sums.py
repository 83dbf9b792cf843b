# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The second stage of a two-stage sum: parts are added in a fixed order, so results are reproducible."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["count", "size", "row", "head"])
def partial_sums_kernel(parts, out, rest, count, size, row, head, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum parts (count, size) over count.

    Of every `row` sums the first `head` are stored in out, the others in rest.
    """
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), parts.dtype.element_ty)
    for first in range(0, count, PARTS):
        part = first + tl.arange(0, PARTS)
        inside = (part < count)[:, None] & (n < size)[None, :]
        total += tl.sum(tl.load(parts + part[:, None].to(tl.int64) * size + n[None, :], mask=inside, other=0.0), axis=0)
    if rest is None:
        tl.store(out + n, total, mask=n < size)
    else:
        group = n // row
        place = n % row
        tl.store(out + group * head + place, total, mask=(n < size) & (place < head))
        tl.store(rest + group * (row - head) + place - head, total, mask=(n < size) & (place >= head))


def sum_parts(parts: Tensor, dtype: torch.dtype, head: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Sum parts (count, groups, row) over the first dimension: (groups, head) and (groups, row - head).

    Without `head` the first result is (groups, row) and the second None.
    """
    count, groups, row = parts.shape
    if count == 1 and head is None and parts.dtype == dtype:
        return parts[0], None
    out = parts.new_empty((groups, row if head is None else head), dtype=dtype)
    rest = None if head is None else parts.new_empty((groups, row - head), dtype=dtype)
    parts_at_once = min(32, 1 << (count - 1).bit_length())
    block = 2048 // parts_at_once
    if row < 64 * block:  # few sums: use more programs. The order of a sum must not depend on the number of replicas.
        block = 64
    partial_sums_kernel[(triton.cdiv(groups * row, block),)](
        parts,
        out,
        rest,
        count,
        groups * row,
        row,
        row if head is None else head,
        PARTS=parts_at_once,
        BLOCK=block,
        num_warps=4,
    )
    return out, rest


class Parts(NamedTuple):
    """Where a kernel stores parts of two kinds of sums: (groups, head) and (groups, rest).

    Part i of group g starts at (i groups + g) `head_row` of `heads`, and at (i groups + g) `rest_row` of `rests`. A
    single part is the sum itself, so that no second kernel is needed.
    """

    heads: Tensor
    rests: Tensor
    head_row: int
    rest_row: int

    def sums(self) -> tuple[Tensor, Tensor]:
        """Return the sums, (groups, head) and (groups, rest)."""
        if self.heads.dim() == 2:
            return self.heads, self.rests
        head, rest = sum_parts(self.heads, self.heads.dtype, self.head_row - self.rests.shape[1])
        assert rest is not None
        return head, rest


def new_parts(like: Tensor, count: int, groups: int, head: int, rest: int) -> Parts:
    """Return memory for `count` parts of the sums, with dtype and device of a tensor."""
    if count == 1:
        return Parts(like.new_empty(groups, head), like.new_empty(groups, rest), head, rest)
    row = head + rest
    parts = like.new_empty(count, groups, row)
    return Parts(parts, parts.view(-1, row)[:, head:], row, row)
