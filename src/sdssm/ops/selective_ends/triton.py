# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The last output of the selective scan on NVIDIA GPUs: every step is weighted on its own, there is no recurrence.

With T_t the sum of delta over the steps after t, the state at the end of a row is

    h[d, n] = sum_t delta_t[d] x_t[d] B_t[n] exp(T_t[d] A[d, n]),

so the gradients need the same exponentials again and nothing else: no state is stored. One exponential per pass, step
and entry of the state is what bounds both kernels; a GPU computes one where it computes eight products.

Both kernels go from the last step to the first and add up T_t, which is exact where it is small. A program is one warp
with a tile of channels d and entries n: programs of several warps would wait for each other at every sum. The backward
kernel stores sums over its channels (for dB, dC), its entries (for dx, ddelta) and its rows (for dA), which are added
afterwards, always in the same order. The gradient of delta_t is the sum of those of T_s over the earlier steps s.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.padding import next_power_of_two
from sdssm.ops.selective.sums import FOLD, sum_channels, sum_last_axis, sum_neighbours
from sdssm.ops.selective.triton import LN2, LOG2E, load_inputs, load_vector

#: Entries of a program's tile in float32 and entries per thread, forward and backward: a program is one warp, so that
#: it waits for no other warp.
FORWARD_ENTRIES, FORWARD_PER_THREAD = 1024, 32
BACKWARD_ENTRIES, BACKWARD_PER_THREAD = 1024, 32
#: Entries n of a tile of the backward kernel: with more, there are fewer partial sums over n and more over d.
BACKWARD_WIDTH = 32
#: Registers per thread in float32.
FORWARD_REGISTERS, MAX_REGISTERS = 128, 168
#: Rows of a program of the backward kernel, which adds up their gradients of A.
ROWS = 4
#: Channels of a tile where gradients of x and delta are completed, and steps of one where those of B and C are.
CHANNELS, TILE_STEPS = 128, 16
#: Steps whose sums across threads the backward kernel exchanges together, and steps whose sums are loaded together.
GROUP, UNROLL = tl.constexpr(2), tl.constexpr(4)
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["L", "LP", "rows_per_replica", "blocks"]


@triton.jit
def load_rates(A, d, n, D: tl.constexpr, N: tl.constexpr):
    """Return A log2(e) of channels d and entries n, 0 for those that do not exist."""
    mask = (d < D)[:, None] & (n < N)[None, :]
    return tl.load(A + d[:, None] * N + n[None, :], mask=mask, other=0.0) * LOG2E


@triton.jit(do_not_specialize=ANY_SIZE)
def selective_ends_forward_kernel(
    x, delta, A, B, C, lengths, y, L, rows_per_replica,
    D: tl.constexpr, N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Fill y (rows, D)."""
    blocks: tl.constexpr = (D + DB - 1) // DB
    row = tl.program_id(0).to(tl.int64) // blocks
    d = (tl.program_id(0) % blocks) * DB + tl.arange(0, DB)
    n = tl.arange(0, NP)
    A2 = load_rates(A + row // rows_per_replica * D * N, d, n, D, N)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    x, delta, B = x + row * L * D, delta + row * L * D, B + row * L * N
    h = tl.zeros((DB, NP), A2.dtype)
    rest_t = tl.zeros((DB,), A2.dtype)
    for back in range(length):
        x_t, delta_t, B_t = load_inputs(x, delta, B, length - 1 - back, None, d, n, D, N, NP, EVEN, "")
        h += (delta_t * x_t)[:, None] * (B_t[None, :] * tl.exp2(rest_t[:, None] * A2))
        rest_t += delta_t
    C_end = load_vector(C + row * N, n, N, N == NP, "")
    tl.store(y + row * D + d, tl.sum(h * C_end[None, :], axis=1), mask=d < D)


@triton.jit
def load_step(x, delta, B, t, length, d, n, D, N, EVEN: tl.constexpr, WHOLE: tl.constexpr):
    """Load x, delta (DB) and B (NB) of step t; of a step outside the row those of a step inside, with delta = 0."""
    s = tl.maximum(tl.minimum(t, length - 1), 0)
    delta_t = tl.where((t >= 0) & (t < length), load_vector(delta + s * D, d, D, EVEN, ""), 0.0)
    return load_vector(x + s * D, d, D, EVEN, ""), delta_t, load_vector(B + s * N, n, N, WHOLE, "")


@triton.jit
def step_backward(dA, rest_t, x_t, delta_t, B_t, dy, C_end, A2, NEAR: tl.constexpr, W: tl.constexpr):
    """Add the gradient of A from step t, and delta_t to T_t.

    Returns both, the partial sums (DB, NB / NEAR, 2) over n of w and A2 w with w = C B_t exp(T_t A), and those (W, NB)
    over d of dy delta_t x_t exp(T_t A).
    """
    dy_drive = dy * (delta_t * x_t)
    decay = tl.exp2(rest_t[:, None] * A2)
    channel_part = sum_channels(dy_drive[:, None] * decay, W)
    weight = (C_end * B_t)[None, :] * decay
    dA += (dy_drive * rest_t)[:, None] * weight
    return dA, rest_t + delta_t, tl.join(sum_neighbours(weight, NEAR), sum_neighbours(weight * A2, NEAR)), channel_part


@triton.jit(do_not_specialize=ANY_SIZE)
def selective_ends_backward_kernel(
    grad_y, x, delta, A, B, C, lengths, sums, dA_parts, channel_sums, L, LP, rows_per_replica,
    D: tl.constexpr, N: tl.constexpr, DB: tl.constexpr, NB: tl.constexpr, EVEN: tl.constexpr, WHOLE: tl.constexpr,
    NEAR: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Fill partial sums for the gradients of A, of x and delta, and of B and C, from a tile of ROWS rows.

    dA_parts: (programs, D, N), a program for every ROWS rows; sums: (rows, blocks of n, 2, LP, D), those over n of w
    and A2 w; channel_sums: (rows, blocks of d, LP, N), those over d of dy delta_t x_t exp(T_t A).
    """
    d_blocks: tl.constexpr = (D + DB - 1) // DB
    n_blocks: tl.constexpr = (N + NB - 1) // NB
    program = tl.program_id(0).to(tl.int64) // (d_blocks * n_blocks)
    d_block = tl.program_id(0) % d_blocks
    n_block = tl.program_id(0) // d_blocks % n_blocks
    groups_of_rows = tl.cdiv(rows_per_replica, ROWS)
    replica = program // groups_of_rows
    first = (program % groups_of_rows) * ROWS
    d = d_block * DB + tl.arange(0, DB)
    n = n_block * NB + tl.arange(0, NB)
    A2 = load_rates(A + replica * D * N, d, n, D, N)
    dA = tl.zeros((DB, NB), A2.dtype)
    steps = tl.arange(0, GROUP)
    pair = tl.arange(0, 2)
    for place in range(first, tl.minimum(first + ROWS, rows_per_replica)):
        row = replica * rows_per_replica + place
        length = L
        if lengths is not None:
            length = tl.load(lengths + row).to(tl.int32)
        dy = load_vector(grad_y + row * D, d, D, EVEN, "")
        C_end = load_vector(C + row * N, n, N, WHOLE, "")
        row_x, row_delta, row_B = x + row * L * D, delta + row * L * D, B + row * L * N
        sums_pointers = (
            sums + (row * n_blocks + n_block) * 2 * LP * D
            + ((pair[None, None, :] * LP + steps[None, :, None]) * D + d[:, None, None])
        )  # fmt: skip
        channel_pointers = channel_sums + (
            ((row * d_blocks + d_block) * LP + steps[None, :, None]) * N + n[None, None, :]
        )
        rest = tl.zeros((DB,), A2.dtype)
        groups = tl.cdiv(length, GROUP)
        t = (groups - 1) * GROUP
        # The inputs of a group are loaded while the group after it is computed.
        x1, delta1, B1 = load_step(row_x, row_delta, row_B, t + 1, length, d, n, D, N, EVEN, WHOLE)
        x0, delta0, B0 = load_step(row_x, row_delta, row_B, t, length, d, n, D, N, EVEN, WHOLE)
        for back in range(groups):
            t = (groups - 1 - back) * GROUP
            next_x1, next_delta1, next_B1 = load_step(row_x, row_delta, row_B, t - 1, length, d, n, D, N, EVEN, WHOLE)
            next_x0, next_delta0, next_B0 = load_step(row_x, row_delta, row_B, t - 2, length, d, n, D, N, EVEN, WHOLE)
            dA, rest, r1, c1 = step_backward(dA, rest, x1, delta1, B1, dy, C_end, A2, NEAR, W)
            dA, rest, r0, c0 = step_backward(dA, rest, x0, delta0, B0, dy, C_end, A2, NEAR, W)
            row_sums = sum_last_axis(tl.permute(tl.join(r0, r1), (0, 3, 2, 1)), FOLD)
            tl.store(sums_pointers + t * D, row_sums, mask=(d < D)[:, None, None])
            channel_parts = tl.reshape(tl.join(c0, c1), (W, NB, 1, GROUP))
            channel_tile = sum_last_axis(tl.permute(channel_parts, (2, 3, 1, 0)), FOLD)
            tl.store(channel_pointers + t * N, channel_tile, mask=(n < N)[None, None, :])
            x1, delta1, B1 = next_x1, next_delta1, next_B1
            x0, delta0, B0 = next_x0, next_delta0, next_B0
    mask = (d < D)[:, None] & (n < N)[None, :]
    tl.store(dA_parts + program * D * N + d[:, None] * N + n[None, :], dA, mask=mask)


@triton.jit(do_not_specialize=ANY_SIZE)
def complete_channels_kernel(
    sums, x, delta, grad_y, lengths, dx, ddelta, L, LP, D: tl.constexpr, DB: tl.constexpr, BLOCKS: tl.constexpr
):
    """Fill dx and ddelta (rows, L, D) from the sums (rows, BLOCKS, 2, LP, D) over n of w and A2 w.

    The gradient of delta_t is the one through the drive, and those of T_s over all earlier steps s.
    """
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * DB + tl.arange(0, DB)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    dy = tl.load(grad_y + row * D + d, mask=d < D, other=0.0)
    earlier = tl.zeros((DB,), dy.dtype)  # the sum of the gradients of T_s over the steps before t
    for group in range(tl.cdiv(L, UNROLL)):
        for step in tl.static_range(UNROLL):
            t = group * UNROLL + step
            in_length = (d < D) & (t < length)
            ddrive = tl.zeros((DB,), dy.dtype)
            rate_sum = tl.zeros((DB,), dy.dtype)
            for block in tl.static_range(BLOCKS):
                pointers = sums + ((row * BLOCKS + block) * 2 * LP + t) * D + d
                ddrive += tl.load(pointers, mask=in_length, other=0.0)
                rate_sum += tl.load(pointers + LP * D, mask=in_length, other=0.0)
            ddrive *= dy
            offsets = (row * L + t) * D + d
            x_t = tl.load(x + offsets, mask=in_length, other=0.0)
            delta_t = tl.load(delta + offsets, mask=in_length, other=0.0)
            mask = (d < D) & (t < L)
            tl.store(dx + offsets, ddrive * delta_t, mask=mask)
            tl.store(ddelta + offsets, tl.where(in_length, earlier + ddrive * x_t, 0.0), mask=mask)
            earlier += delta_t * x_t * (dy * rate_sum) * LN2


@triton.jit(do_not_specialize=ANY_SIZE)
def complete_kernel(
    channel_sums, B, C, lengths, dB, dC, L, LP, blocks, N: tl.constexpr, NP: tl.constexpr, TILE: tl.constexpr
):
    """Fill the gradients of B (rows, L, N) and C (rows, N) of a row from its channel sums (rows, blocks, LP, N)."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, NP)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    C_n = tl.load(C + row * N + n, mask=n < N, other=0.0)
    dC_n = tl.zeros((NP,), C_n.dtype)
    for start in range(0, L, TILE):
        t = start + tl.arange(0, TILE)
        mask = (t < L)[:, None] & (n < N)[None, :]
        in_length = (t < length)[:, None] & (n < N)[None, :]
        offsets = t[:, None] * N + n[None, :]
        total = tl.zeros((TILE, NP), C_n.dtype)
        for block in range(blocks):
            total += tl.load(channel_sums + (row * blocks + block) * LP * N + offsets, mask=in_length, other=0.0)
        tl.store(dB + row * L * N + offsets, total * C_n[None, :], mask=mask)
        dC_n += tl.sum(total * tl.load(B + row * L * N + offsets, mask=in_length, other=0.0), axis=0)
    tl.store(dC + row * N + n, dC_n, mask=n < N)


def tile_constants(D: int, N: int, dtype: torch.dtype, entries: int, per_thread: int, width: int) -> dict[str, Any]:
    """Return the constants of a tile of up to `width` entries n and its warps; in float64 it has half as many."""
    size = dtype.itemsize // 4
    NB = max(2, min(next_power_of_two(N), width))
    DB = max(2, min(next_power_of_two(D), entries // NB // size))
    warps = max(1, min(16, DB * NB * size // (32 * per_thread)))
    return {"D": D, "N": N, "DB": DB, "NB": NB, "EVEN": D % DB == 0, "num_warps": warps}


def forward_constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constants of the forward kernel, whose programs have all entries of their channels."""
    constants = tile_constants(D, N, dtype, FORWARD_ENTRIES, FORWARD_PER_THREAD, next_power_of_two(N))
    register_limit = {} if dtype == torch.float64 else {"maxnreg": FORWARD_REGISTERS}
    return {**constants, "NP": constants.pop("NB"), **register_limit}


def backward_constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constants of the backward kernel.

    NEAR entries of n, 16 bytes, are what a thread loads at once; W threads share the channels of an entry n.
    """
    constants = tile_constants(D, N, dtype, BACKWARD_ENTRIES, BACKWARD_PER_THREAD, BACKWARD_WIDTH)
    near = min(constants["NB"], 16 // dtype.itemsize)
    threads = max(1, min(constants["DB"], 32 * constants["num_warps"] * near // constants["NB"]))
    register_limit = {} if dtype == torch.float64 else {"maxnreg": MAX_REGISTERS}
    return {**constants, "WHOLE": N % constants["NB"] == 0, "NEAR": near, "W": threads, "ROWS": ROWS, **register_limit}


def forward(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, lengths: Tensor | None, needs_grad: bool
) -> tuple[Tensor]:
    """Return y (R, B, D); nothing else is kept for the gradient.

    x, delta (R, B, L, D), A (R, D, N), B (R, B, L, N), C (R, B, N), lengths (R, B).
    """
    R, rows, L, D = x.shape
    constants = forward_constants(D, A.shape[-1], x.dtype)
    y = x.new_empty(R, rows, D)
    if y.numel():
        selective_ends_forward_kernel[(R * rows * triton.cdiv(D, constants["DB"]),)](
            x, delta, A, B, C, lengths, y, L, rows, **constants
        )
    return (y,)


def backward(
    grad_y: Tensor, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, lengths: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    """Return the gradients of x, delta, A, B and C; `rest` is ignored.

    LP is L rounded up to entire groups of steps.
    """
    R, rows, L, D = x.shape
    N, padded = A.shape[-1], triton.cdiv(L, GROUP.value) * GROUP.value
    constants = backward_constants(D, N, x.dtype)
    d_blocks, n_blocks = triton.cdiv(D, constants["DB"]), triton.cdiv(N, constants["NB"])
    programs = triton.cdiv(rows, ROWS)
    dx, ddelta, dB, dC = (torch.empty_like(tensor) for tensor in (x, x, B, C))
    dA_parts = x.new_empty(R, programs, D, N)
    sums = x.new_empty(R, rows, n_blocks, 2, padded, D)
    channel_sums = x.new_empty(R, rows, d_blocks, padded, N)
    if x.numel():
        selective_ends_backward_kernel[(R * programs * d_blocks * n_blocks,)](
            grad_y, x, delta, A, B, C, lengths, sums, dA_parts, channel_sums, L, padded, rows, **constants
        )
        DB = min(CHANNELS, next_power_of_two(D))
        complete_channels_kernel[(R * rows, triton.cdiv(D, DB))](
            sums, x, delta, grad_y, lengths, dx, ddelta, L, padded, D=D, DB=DB, BLOCKS=n_blocks, num_warps=1
        )
        complete_kernel[(R * rows,)](
            channel_sums, B, C, lengths, dB, dC, L, padded, d_blocks,
            N=N, NP=max(2, next_power_of_two(N)), TILE=TILE_STEPS, num_warps=4,
        )  # fmt: skip
    return dx, ddelta, dA_parts.sum(1), dB, dC
