# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Rows of a table on NVIDIA GPUs: one kernel forward; one and a sum for the gradient of the table.

A program of the gradient adds up the positions of one symbol in a piece of all positions, and loads nothing of the
others. The partial sums of the pieces are added in an order that does not depend on the number of replicas.

Constants of the kernels: V rows of F entries in a table, TM positions and TF entries of a tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops.padding import next_power_of_two

#: Entries of a tile, 16 per thread, and the most entries of a row in it.
TILE_ENTRIES, ROW_ENTRIES = 2048, 128
#: Pieces of all positions, for each replica, and the fewest positions of a piece.
PIECES, PIECE_POSITIONS = 32, 128


@triton.jit
def tile_places(M, F: tl.constexpr, TM: tl.constexpr, TF: tl.constexpr):
    """Return the positions (TM,) and entries (TF,) of the tile of this program."""
    tiles: tl.constexpr = (F + TF - 1) // TF
    m = tl.program_id(0) // tiles * TM + tl.arange(0, TM)
    return m, tl.program_id(0) % tiles * TF + tl.arange(0, TF)


@triton.jit(do_not_specialize=["M"])
def table_rows_forward_kernel(
    table, tokens, out, M, V: tl.constexpr, F: tl.constexpr, TM: tl.constexpr, TF: tl.constexpr
):
    """Fill out (R, M, F) from table (R, V, F) and tokens (R, M)."""
    replica = tl.program_id(1).to(tl.int64)
    m, f = tile_places(M, F, TM, TF)
    token = tl.load(tokens + replica * M + m, mask=m < M, other=-1)
    known = (token >= 0) & (token < V)
    f_mask = (f < F)[None, :]
    rows = tl.load(table + (replica * V + token)[:, None] * F + f[None, :], mask=known[:, None] & f_mask, other=0.0)
    tl.store(out + (replica * M + m)[:, None] * F + f[None, :], rows, mask=(m < M)[:, None] & f_mask)


@triton.jit(do_not_specialize=["M", "piece"])
def table_rows_backward_kernel(
    grad, tokens, parts, M, piece, V: tl.constexpr, F: tl.constexpr, TM: tl.constexpr, TF: tl.constexpr
):
    """Store the partial sums (pieces, R, V, F) of the gradients of each symbol."""
    replica = tl.program_id(2).to(tl.int64)
    symbol = tl.program_id(0) % V
    f = tl.program_id(0) // V * TF + tl.arange(0, TF)
    total = tl.zeros((TM, TF), grad.dtype.element_ty)
    start = tl.program_id(1) * piece
    end = tl.minimum(start + piece, M)
    for first in tl.range(start, end, TM):
        m = first + tl.arange(0, TM)
        own = tl.load(tokens + replica * M + m, mask=m < end, other=-1) == symbol
        offsets = (replica * M + m)[:, None] * F + f[None, :]
        total += tl.load(grad + offsets, mask=own[:, None] & (f < F)[None, :], other=0.0)
    place = ((tl.program_id(1) * tl.num_programs(2) + replica) * V + symbol) * F + f
    tl.store(parts + place, tl.sum(total, axis=0), mask=f < F)


def tile_sides(F: int) -> dict[str, int]:
    """Return the sides of a tile."""
    TF = min(ROW_ENTRIES, next_power_of_two(F))
    return {"F": F, "TM": TILE_ENTRIES // TF, "TF": TF}


def forward(table: Tensor, tokens: Tensor) -> tuple[Tensor]:
    """Return rows (R, M, F) for table (R, V, F) and tokens (R, M)."""
    (R, V, F), M = table.shape, tokens.shape[1]
    sides = tile_sides(F)
    out = table.new_empty(R, M, F)
    if out.numel():
        table_rows_forward_kernel[(triton.cdiv(M, sides["TM"]) * triton.cdiv(F, sides["TF"]), R)](
            table, tokens, out, M, V=V, **sides, num_warps=4
        )
    return (out,)


def backward(grad: Tensor, table: Tensor, tokens: Tensor) -> tuple[Tensor]:
    """Return the gradient of the table."""
    (R, V, F), M = table.shape, tokens.shape[1]
    if not grad.numel():
        return (torch.zeros_like(table),)
    sides = tile_sides(F)
    piece = max(PIECE_POSITIONS, triton.cdiv(M, PIECES))
    pieces = triton.cdiv(M, piece)
    parts = grad.new_empty(pieces, R, V * F)
    table_rows_backward_kernel[(V * triton.cdiv(F, sides["TF"]), pieces, R)](
        grad, tokens, parts, M, piece, V=V, **sides, num_warps=4
    )
    return (sum_parts(parts, grad.dtype)[0].view(table.shape),)
