# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The token scan on NVIDIA GPUs: x_t = A[token_t] x_{t-1} + b[token_t].

The V matrices of a replica stay in the caches; no tensor of size B x L x N x N is created. The weight gradient
dA[v] = sum over the positions with token v of dz_t x_{t-1}^T is summed in two stages, in a fixed order.

Results are bit-identical in every run. In the last bits they depend on the number of replicas, which decides the
kernels (token_tiles.py), their warps, and how the sum over positions is split and ordered: of many replicas, each needs
fewer programs to fill a GPU. A replica alone and next to others is equal up to rounding, as docs/explanation/engine.md
says.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton import token_tiles
from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops._triton.scan import scan_backward, scan_forward
from sdssm.ops._triton.source import Source
from sdssm.ops._triton.symbol_lists import symbol_order
from sdssm.ops._triton.tile import TOKEN
from sdssm.ops.padding import next_power_of_two

#: Up to this many symbols the positions of each are listed by a kernel; above it the positions are sorted by symbol.
LISTED_SYMBOLS = 12
#: Below this many positions of all replicas they are not listed: every program reads those of its replica with a mask,
#: which saves a kernel. On an H200, with V 2, N 64 and 5,120 positions each: 12 us with a mask and 19 listed for one
#: replica, 53 and 31 for 16, 187 and 71 for 64.
LEAST_LISTED = 1 << 15
#: Programs for the weight gradient: about one and a half waves of a large GPU. There are more if a program would have
#: more than POSITIONS_EACH positions, but at most MAX_SPLITS for one sum.
PROGRAMS, POSITIONS_EACH, MAX_SPLITS = 192, 256, 96
#: Positions that a program of the weight gradient reads at a time, and its warps.
POSITIONS_AT_ONCE, GRADIENT_WARPS = 32, 4
#: At most this many for one sum of matrices with many tiles: the parts of 96 such sums would not fit the memory.
WIDE_TILES, MAX_WIDE_SPLITS = 17, 2


@triton.jit(do_not_specialize=["positions", "L", "splits"])
def token_weight_gradient_kernel(
    tokens, order, bounds, lengths, adjoints, states, x0, parts,
    positions, L, V, splits,
    N: tl.constexpr, TILE: tl.constexpr, POSITIONS: tl.constexpr, BIAS: tl.constexpr, LISTED: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Compute partial sums of dz_t x_{t-1}^T and, with BIAS, of dz_t over the positions of a symbol.

    parts is (splits, R, V, N * N + N), or (splits, R, V, N * N) without BIAS.

    order, if present, lists a replica's positions sorted by symbol, and bounds (R, V + 1) the first of each symbol.
    With LISTED each symbol has a list of its own, order (R, V, positions), and bounds (R, V) are their lengths.
    Without order the positions are visited step by step, all rows of a step together, up to the longest of the lengths.
    """
    replica_symbol = tl.program_id(0).to(tl.int64)
    replica = replica_symbol // V
    symbol = replica_symbol % V
    split = tl.program_id(1)
    tiles: tl.constexpr = (N + TILE - 1) // TILE
    i = (tl.program_id(2) // tiles) * TILE + tl.arange(0, TILE)
    j = (tl.program_id(2) % tiles) * TILE + tl.arange(0, TILE)

    B = positions // L
    first = 0
    end = positions
    if order is None:
        if lengths is not None:
            longest = 0
            for offset in range(0, B, 128):
                b = offset + tl.arange(0, 128)
                steps = tl.load(lengths + replica * B + b, mask=b < B, other=0).to(tl.int32)
                longest = tl.maximum(longest, tl.max(steps, axis=0))
            end = longest * B
    elif LISTED:
        end = tl.load(bounds + replica_symbol)
        order += replica_symbol * positions
    else:
        order += replica * positions
        first = tl.load(bounds + replica * (V + 1) + symbol).to(tl.int32)
        end = tl.load(bounds + replica * (V + 1) + symbol + 1).to(tl.int32)
    acc = tl.zeros((TILE, TILE), ACC)
    acc_b = tl.zeros((TILE,), ACC)
    for at in range(first + split * POSITIONS, end, splits * POSITIONS):
        place = at + tl.arange(0, POSITIONS)
        in_range = place < end
        if order is None:
            t = place // B
            string = place % B
            place = string * L + t
            if lengths is not None:
                in_range = in_range & (t < tl.load(lengths + replica * B + string, mask=in_range, other=0))
        else:
            place = tl.load(order + place, mask=in_range, other=0)
        position = replica * positions + place
        if order is None:
            in_range = tl.load(tokens + position, mask=in_range, other=-1) == symbol
        has_previous = in_range & (place % L > 0)
        mask = in_range[:, None] & (i < N)[None, :]
        dz = tl.load(adjoints + position[:, None] * N + i[None, :], mask=mask, other=0.0)
        mask = has_previous[:, None] & (j < N)[None, :]
        x = tl.load(states + (position - 1)[:, None] * N + j[None, :], mask=mask, other=0.0).to(ACC)
        if x0 is not None:
            is_first = in_range & (place % L == 0)
            row = position // L
            mask = is_first[:, None] & (j < N)[None, :]
            x += tl.load(x0 + row[:, None] * N + j[None, :], mask=mask, other=0.0).to(ACC)
        acc += tl.dot(tl.trans(dz), x, input_precision="ieee", out_dtype=ACC)
        if BIAS:
            acc_b += tl.sum(dz, axis=0)
    size: tl.constexpr = N * N + N if BIAS else N * N
    part = parts + (split * tl.num_programs(0) + replica_symbol) * size
    tl.store(part + i[:, None] * N + j[None, :], acc, mask=(i < N)[:, None] & (j < N)[None, :])
    if BIAS:
        tl.store(part + N * N + i, acc_b, mask=(i < N) & (tl.program_id(2) % tiles == 0))


def weight_gradient(
    A: Tensor, b: Tensor | None, tokens: Tensor, x0: Tensor | None, lengths: Tensor | None, states: Tensor,
    adjoints: Tensor,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return dA (R, V, N, N) and db (R, V, N) or None from the adjoints dz, R * B rows of (L, N)."""
    R, V, N, _ = A.shape
    _, B, L = tokens.shape
    positions = B * L
    order = bounds = None
    is_listed = V <= LISTED_SYMBOLS and R * positions >= LEAST_LISTED
    if is_listed:
        order, bounds = symbol_order(tokens, lengths, V)
    elif V > LISTED_SYMBOLS:
        keys = tokens.view(R, positions)
        symbols, order = (keys.to(torch.uint8) if V < 256 else keys).sort(dim=1, stable=True)  # fewer radix passes
        starts = torch.arange(V + 1, device=A.device, dtype=symbols.dtype).expand(R, -1).contiguous()
        bounds = torch.searchsorted(symbols, starts)
    tile = min(64, max(16, next_power_of_two(N)))
    tiles = triton.cdiv(N, tile) ** 2
    share = positions if order is None else triton.cdiv(positions, V)
    most = MAX_SPLITS if tiles < WIDE_TILES else MAX_WIDE_SPLITS
    splits = max(PROGRAMS // (R * V * tiles), min(share // POSITIONS_EACH, most), 1)
    splits = min(splits, triton.cdiv(share, POSITIONS_AT_ONCE))
    parts = adjoints.new_empty(splits, R * V, N * N if b is None else N * N + N)
    token_weight_gradient_kernel[(R * V, splits, tiles)](
        tokens, order, bounds, lengths, adjoints, states, x0, parts, positions, L, V, splits,
        N=N, TILE=tile, POSITIONS=POSITIONS_AT_ONCE, BIAS=b is not None, LISTED=is_listed,
        ACC=tl.float64 if adjoints.dtype == torch.float64 else tl.float32, num_warps=GRADIENT_WARPS, num_stages=1,
    )  # fmt: skip
    dA, db = sum_parts(parts, A.dtype, None if b is None else N * N)
    return dA.view(A.shape), None if db is None else db.view(R, V, N)


def source_of(A: Tensor, tokens: Tensor) -> Source:
    """Return the matrices as the kernels read them."""
    R, B, L = tokens.shape
    return Source(TOKEN, A, R * B, L, 1, A.shape[-1], tokens=tokens, count=A.shape[1], rows_per_replica=B)


def forward(
    A: Tensor, b: Tensor | None, tokens: Tensor, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (R, B, L, N), final (R, B, N) and factors (R, B, L) or empty."""
    if token_tiles.is_faster(A, tokens, mode):
        return token_tiles.forward(A, b, tokens, x0, lengths, rescale)
    states, final, factors = scan_forward(source_of(A, tokens), b, x0, lengths, rescale, mode)
    shape = tokens.shape
    return (
        states.view(*shape, A.shape[-1]),
        final.view(*shape[:2], A.shape[-1]),
        factors.view(shape) if rescale else factors,
    )


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, A: Tensor, b: Tensor | None, tokens: Tensor,
    x0: Tensor | None, lengths: Tensor | None, states: Tensor, factors: Tensor, *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Return dA (R, V, N, N), db (R, V, N) or None, and dx0 (R, B, N)."""
    if token_tiles.is_faster(A, tokens, mode):
        adjoints, dx0 = token_tiles.backward(A, tokens, grad_states, grad_final, lengths, states, factors, rescale)
    else:
        source = source_of(A, tokens)
        rows = (source.rows, source.length, source.state)
        adjoints, dx0, _ = scan_backward(
            source,
            None if grad_states is None else grad_states.view(rows),
            None if grad_final is None else grad_final.view(rows[0], rows[2]),
            None if lengths is None else lengths.view(-1),
            states.view(rows), factors, rescale, mode,
        )  # fmt: skip
    dA, db = weight_gradient(A, b, tokens, x0, lengths, states, adjoints)
    return dA, db, dx0.view(*tokens.shape[:2], A.shape[-1]).to(A.dtype)
