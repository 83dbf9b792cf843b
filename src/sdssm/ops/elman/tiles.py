# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Triton helpers of the Elman and LSTM scans: tiles of rows, and products with the matrix W.

Constants of the kernels: N entries of a state, NP the width of a tile (N padded to a power of two, or a part of N), TB
rows per program, CK entries of the inner dimension per tile of a streamed product, ACC the accumulator's dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sdssm.ops.padding import next_power_of_two

#: Rows per program: the fewest that tensor cores multiply.
ROWS = 16
#: Tile of a streamed W: CHUNK_IN entries of the previous state times CHUNK_OUT entries of the next.
CHUNK_IN, CHUNK_OUT = 32, 64


def kernel_constants(dtype: torch.dtype, size: int, largest_resident: int) -> dict[str, Any]:
    """Return the compile-time constants for states of `size` entries.

    Up to `largest_resident` entries W stays on chip.

    float32 is multiplied as three tensor-core products of its parts, which keeps float32 precision; TF32 alone would
    not.
    """
    is_float64 = dtype == torch.float64
    return {
        "N": size,
        "NP": max(16, next_power_of_two(size)) if size <= largest_resident else CHUNK_OUT,
        "TB": ROWS,
        "CK": CHUNK_IN,
        "RESIDENT": size <= largest_resident,
        "PRECISION": "ieee" if is_float64 else "tf32x3",
        "ACC": tl.float64 if is_float64 else tl.float32,
    }


@triton.jit
def row_tile(lengths, L, B, TB: tl.constexpr):
    """Return the TB rows of this program: their indices, the mask of existing rows, and their lengths."""
    index = tl.program_id(0) * TB + tl.arange(0, TB)
    row_mask = index < B
    row = tl.program_id(1).to(tl.int64) * B + index
    length = tl.where(row_mask, L, 0)
    if lengths is not None:
        length = tl.load(lengths + row, mask=row_mask, other=0).to(tl.int32)
    return row, row_mask, length


@triton.jit
def load_matrix(W, N: tl.constexpr, NP: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Load W (N, N) as a tile (NP, NP), transposed for products of rows of states with W^T."""
    i = tl.arange(0, NP)[:, None]
    j = tl.arange(0, NP)[None, :]
    offsets = j * N + i if TRANSPOSED else i * N + j
    return tl.load(W + offsets, mask=(i < N) & (j < N), other=0.0)


@triton.jit
def streamed_product(
    x, row_mask, W, n, N: tl.constexpr, K: tl.constexpr, TB: tl.constexpr, NP: tl.constexpr, CK: tl.constexpr,
    TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Return columns n of x W for W (K, N), or of x W^T for W (N, K), read in tiles.

    x holds TB pointers to rows of K entries.
    """
    accumulator = tl.zeros((TB, NP), ACC)
    for start in range(0, K, CK):
        k = start + tl.arange(0, CK)
        x_tile = tl.load(x[:, None] + k[None, :], mask=row_mask[:, None] & (k < K)[None, :], other=0.0)
        offsets = n[None, :] * K + k[:, None] if TRANSPOSED else k[:, None] * N + n[None, :]
        w_tile = tl.load(W + offsets, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        accumulator += tl.dot(x_tile, w_tile, input_precision=PRECISION, out_dtype=ACC)
    return accumulator
