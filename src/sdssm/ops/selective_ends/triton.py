# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The last output of the selective scan on NVIDIA GPUs: every step is weighted on its own, there is no recurrence.

With T_t the sum of delta over the steps after t, the state at the end of a row is

    h[d, n] = sum_t delta_t[d] x_t[d] B_t[n] exp(T_t[d] A[d, n]),

so the gradients need the same exponentials again and nothing else: no state is stored. One exponential per pass, step
and entry of the state is what bounds both kernels; a GPU computes one where it computes eight products.

Both kernels go from the last step to the first and add up T_t, which is exact where it is small; the backward kernel
takes groups of four steps. The gradient of delta_t is the sum of those of T_s over the earlier steps s, which is
computed afterwards. Sums over channels (dB, dC) and rows (dA) are stored as partial sums and added afterwards, always
in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.source import register_limit
from sdssm.ops.padding import next_power_of_two
from sdssm.ops.selective.sums import FOLD, stack_four, stack_four_rows, sum_channels, sum_last_axis, sum_neighbours
from sdssm.ops.selective.triton import GROUP, LN2, LOG2E, channel_tile, load_inputs, load_vector

#: Entries of a program's tile in float32 and entries per thread, forward and backward: with more entries per thread
#: fewer loads and sums across threads are needed for each, until the registers of two programs no longer fit.
FORWARD_ENTRIES, FORWARD_PER_THREAD = 4096, 16
BACKWARD_ENTRIES, BACKWARD_PER_THREAD = 4096, 16
#: Registers per thread in float32: few enough for three programs per multiprocessor, or two of the backward kernel.
FORWARD_REGISTERS, MAX_REGISTERS = 80, 128
#: Rows of a program of the backward kernel, which adds up their gradients of A.
ROWS = 4
#: Steps of a tile where gradients of x and delta, or of B and C, are completed.
TILE_STEPS = 16
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["L", "LP", "rows_per_replica", "blocks"]


@triton.jit(do_not_specialize=ANY_SIZE)
def selective_ends_forward_kernel(
    x, delta, A, B, C, lengths, y, L, rows_per_replica,
    D: tl.constexpr, N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Fill y (rows, D)."""
    row, d, n, _, _, A2 = channel_tile(A, D, rows_per_replica, N, DB, NP)
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
def step_backward(
    dA, rest_t, x, delta, B, dy, C_end, t, length, d, n, A2, D,
    N: tl.constexpr, EVEN: tl.constexpr, NEAR: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Add the gradient of A from step t, and delta_t to T_t; past the end of the row delta is 0, so nothing is added.

    Returns both, the partial sums (DB, NP / NEAR, 2) over n of w and A2 w with w = C B_t exp(T_t A), and those (W, NP)
    over d of dy delta_t x_t exp(T_t A).
    """
    x_t, delta_t, B_t = load_inputs(x, delta, B, t, length, d, n, D, N, A2.shape[1], EVEN, "")
    dy_drive = dy * (delta_t * x_t)
    decay = tl.exp2(rest_t[:, None] * A2)
    channel_part = sum_channels(dy_drive[:, None] * decay, W)
    weight = (C_end * B_t)[None, :] * decay
    dA += (dy_drive * rest_t)[:, None] * weight
    return dA, rest_t + delta_t, tl.join(sum_neighbours(weight, NEAR), sum_neighbours(weight * A2, NEAR)), channel_part


@triton.jit
def complete_channels(
    sums, x, delta, dy, dx, ddelta, length, d, L, D, LP, DB: tl.constexpr, TILE: tl.constexpr, ACC: tl.constexpr
):
    """Fill dx and ddelta of a row from the sums (DB, LP, 2) over n of w and A2 w.

    The gradient of delta_t is the one through the drive, and those of T_s over all earlier steps s.
    """
    i = tl.arange(0, DB)
    earlier = tl.zeros((DB,), ACC)  # the sum of the gradients of T_s over the steps before the tile
    dy_d = tl.load(dy + d, mask=d < D, other=0.0)[:, None]
    for start in range(0, L, TILE):
        t = start + tl.arange(0, TILE)
        mask = (d < D)[:, None] & (t < L)[None, :]
        in_length = (d < D)[:, None] & (t < length)[None, :]
        places = 2 * (i[:, None] * LP + t[None, :])
        offsets = t[None, :] * D + d[:, None]
        ddrive = dy_d * tl.load(sums + places, mask=in_length, other=0.0)
        rate_sum = dy_d * tl.load(sums + places + 1, mask=in_length, other=0.0)
        x_t = tl.load(x + offsets, mask=in_length, other=0.0)
        delta_t = tl.load(delta + offsets, mask=in_length, other=0.0)
        drest = delta_t * x_t * rate_sum * LN2
        total = earlier[:, None] + tl.cumsum(drest, axis=1)
        tl.store(dx + offsets, ddrive * delta_t, mask=mask)
        tl.store(ddelta + offsets, tl.where(in_length, total - drest + ddrive * x_t, 0.0), mask=mask)
        earlier += tl.sum(drest, axis=1)


@triton.jit(do_not_specialize=ANY_SIZE)
def selective_ends_backward_kernel(
    grad_y, x, delta, A, B, C, lengths, sums, dx, ddelta, dA_parts, channel_sums,
    L, LP, rows_per_replica, D: tl.constexpr, N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, EVEN: tl.constexpr,
    NEAR: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of x and delta, and partial sums for those of A, B and C.

    dx, ddelta: (rows, L, D); dA_parts: (programs, D, N), a program for every ROWS rows; channel_sums: (rows, blocks of
    channels, LP, N), the sums over d of dy delta_t x_t exp(T_t A); sums (rows, blocks, DB, LP, 2) is for own use.
    """
    groups_of_rows = tl.cdiv(rows_per_replica, ROWS)
    replica = tl.program_id(0).to(tl.int64) // groups_of_rows
    first = (tl.program_id(0) % groups_of_rows) * ROWS
    d = tl.program_id(1) * DB + tl.arange(0, DB)
    n = tl.arange(0, NP)
    offsets = d[:, None] * N + n[None, :]
    mask = (d < D)[:, None] & (n < N)[None, :]
    A2 = tl.load(A + replica * D * N + offsets, mask=mask, other=0.0) * LOG2E
    dA = tl.zeros((DB, NP), A2.dtype)
    i = tl.arange(0, DB)
    steps = tl.arange(0, 4)
    for place in range(first, tl.minimum(first + ROWS, rows_per_replica)):
        row = replica * rows_per_replica + place
        part = row * tl.num_programs(1) + tl.program_id(1)
        length = L
        if lengths is not None:
            length = tl.load(lengths + row).to(tl.int32)
        dy = load_vector(grad_y + row * D, d, D, EVEN, "")
        C_end = load_vector(C + row * N, n, N, N == NP, "")
        row_x, row_delta, row_B = x + row * L * D, delta + row * L * D, B + row * L * N
        row_sums = sums + part * DB * LP * 2
        sums_pointers = row_sums + 2 * (i[:, None, None] * LP + steps[None, :, None]) + tl.arange(0, 2)[None, None, :]
        channel_pointers = channel_sums + (part * LP + steps[None, :, None]) * N + n[None, None, :]
        rest = tl.zeros((DB,), A2.dtype)
        groups = tl.cdiv(length, GROUP)
        for back in range(groups):
            t = (groups - 1 - back) * GROUP
            dA, rest, r3, c3 = step_backward(
                dA, rest, row_x, row_delta, row_B, dy, C_end, t + 3, length, d, n, A2, D, N, EVEN, NEAR, W
            )
            dA, rest, r2, c2 = step_backward(
                dA, rest, row_x, row_delta, row_B, dy, C_end, t + 2, length, d, n, A2, D, N, EVEN, NEAR, W
            )
            dA, rest, r1, c1 = step_backward(
                dA, rest, row_x, row_delta, row_B, dy, C_end, t + 1, length, d, n, A2, D, N, EVEN, NEAR, W
            )
            dA, rest, r0, c0 = step_backward(
                dA, rest, row_x, row_delta, row_B, dy, C_end, t, length, d, n, A2, D, N, EVEN, NEAR, W
            )
            tl.store(sums_pointers + 2 * t, sum_last_axis(tl.permute(stack_four(r0, r1, r2, r3), (0, 3, 2, 1)), FOLD))
            channel_parts = tl.permute(stack_four_rows(c0, c1, c2, c3), (2, 3, 1, 0))
            tl.store(channel_pointers + t * N, sum_last_axis(channel_parts, FOLD), mask=(n < N)[None, None, :])
        tl.debug_barrier()  # the sums were stored by other threads than those that load them
        row_dx, row_ddelta = dx + row * L * D, ddelta + row * L * D
        complete_channels(
            row_sums, row_x, row_delta, grad_y + row * D, row_dx, row_ddelta, length, d, L, D, LP, DB, TILE, A2.dtype
        )
    tl.store(dA_parts + tl.program_id(0).to(tl.int64) * D * N + offsets, dA, mask=mask)


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


def kernel_constants(D: int, N: int, dtype: torch.dtype, entries: int, per_thread: int) -> dict[str, Any]:
    """Return the compile-time constants of a kernel and its warps; in float64 a tile has half as many channels."""
    NP = max(2, next_power_of_two(N))
    size = dtype.itemsize // 4
    DB = max(2, min(next_power_of_two(D), entries // NP // size))
    warps = max(1, min(16, DB * NP * size // (32 * per_thread)))
    return {"D": D, "N": N, "DB": DB, "NP": NP, "EVEN": D % DB == 0, "num_warps": warps}


def forward_constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constants of the forward kernel."""
    constants = kernel_constants(D, N, dtype, FORWARD_ENTRIES, FORWARD_PER_THREAD)
    return {**constants, **register_limit(dtype, FORWARD_REGISTERS)}


def backward_constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constants of the backward kernel.

    NEAR entries of n, 16 bytes, are what a thread loads at once; W threads share the channels of an entry n.
    """
    constants = kernel_constants(D, N, dtype, BACKWARD_ENTRIES, BACKWARD_PER_THREAD)
    near = min(constants["NP"], 16 // dtype.itemsize)
    threads = max(1, min(constants["DB"], 32 * constants["num_warps"] * near // constants["NP"]))
    return {
        **constants,
        "NEAR": near,
        "W": threads,
        "ROWS": ROWS,
        "TILE": TILE_STEPS,
        **register_limit(dtype, MAX_REGISTERS),
    }


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
        selective_ends_forward_kernel[(R * rows, triton.cdiv(D, constants["DB"]))](
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
    blocks, programs = triton.cdiv(D, constants["DB"]), triton.cdiv(rows, ROWS)
    dx, ddelta, dB, dC = (torch.empty_like(tensor) for tensor in (x, x, B, C))
    dA_parts = x.new_empty(R, programs, D, N)
    sums = x.new_empty(R, rows, blocks, constants["DB"], padded, 2)
    channel_sums = x.new_empty(R, rows, blocks, padded, N)
    if x.numel():
        selective_ends_backward_kernel[(R * programs, blocks)](
            grad_y, x, delta, A, B, C, lengths, sums, dx, ddelta, dA_parts, channel_sums,
            L, padded, rows, **constants,
        )  # fmt: skip
        complete_kernel[(R * rows,)](
            channel_sums, B, C, lengths, dB, dC, L, padded, blocks,
            N=N, NP=constants["NP"], TILE=TILE_STEPS, num_warps=4,
        )  # fmt: skip
    return dx, ddelta, dA_parts.sum(1), dB, dC
