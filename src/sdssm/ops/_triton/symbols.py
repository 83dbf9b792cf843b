# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Strings from their ends on, and rows of tables that they select, inside of Triton kernels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.padding import next_power_of_two

#: Strings of a program.
STRINGS = 32


@triton.jit(do_not_specialize=["B", "L"])
def reversed_symbols_kernel(tokens, lengths, symbols, B, L, TB: tl.constexpr, LP: tl.constexpr):
    """Fill symbols (R, L, B) from tokens (R, B, L): symbol 0 is the last one, and -1 stands before the start."""
    replica = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * TB + tl.arange(0, TB)
    place = tl.arange(0, LP)
    row = replica * B + b
    length = tl.zeros((TB,), tl.int64) + L
    if lengths is not None:
        length = tl.load(lengths + row, mask=b < B, other=0)
    at = length[:, None] - 1 - place[None, :]
    inside = (b < B)[:, None] & (at >= 0)
    token = tl.load(tokens + row[:, None] * L + at, mask=inside, other=-1)
    mask = (b < B)[:, None] & (place < L)[None, :]
    tl.store(symbols + (replica * L + place[None, :]) * B + b[:, None], token.to(tl.int32), mask=mask)


@triton.jit
def select(table, row, symbols, V: tl.constexpr, WIDTH: tl.constexpr):
    """Return the entries of a column of a table (V, WIDTH) that symbols select; `row` points to its first entry."""
    selected = (symbols * 0).to(table.dtype.element_ty)
    for v in tl.static_range(V):
        selected = tl.where(symbols == v, tl.load(table + row + v * WIDTH), selected)
    return selected


def reverse_symbols(tokens: Tensor, lengths: Tensor | None) -> Tensor:
    """Return strings (R, B, L) from their ends on, (R, L, B) as 32-bit integers; -1 stands before their starts."""
    R, B, L = tokens.shape
    # Narrower integers would make Triton choose layouts for `tl.dot` that do not exist for float64.
    symbols = tokens.new_empty(R, L, B, dtype=torch.int32)
    if symbols.numel():
        reversed_symbols_kernel[(triton.cdiv(B, STRINGS), R)](
            tokens, lengths, symbols, B, L, TB=STRINGS, LP=next_power_of_two(L), num_warps=4
        )
    return symbols
