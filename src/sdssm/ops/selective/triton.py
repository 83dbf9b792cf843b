# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Selective scan on NVIDIA GPUs: a program holds the states of some channels of a row in registers.

Constants of the kernels: D channels, DB of them per program, N entries of a channel's state padded to NP.

The forward kernel stores only y_t, and a checkpoint of the state every STRIDE steps if a gradient is needed. The
backward kernel processes groups of four steps from the last to the first: it recomputes the state before a group from
the nearest checkpoint, and keeps those inside the group in registers. Sums over channels (dB, dC) and rows (dA) are
stored as partial sums and added by torch, always in the same order. Past the end of a row delta is 0, which leaves the
state unchanged.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.source import register_limit
from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.padding import next_power_of_two
from sdssm.ops.selective.sums import FOLD, stack_four, sum_channels, sum_last_axis, sum_neighbours

#: Steps per group in the backward kernel, which has variables for four states.
GROUP = tl.constexpr(4)
#: Steps between two checkpoints of the state: a multiple of GROUP.
STRIDE = 8
#: exp(v) = exp2(LOG2E v): the GPU has an instruction for exp2, and A is multiplied by LOG2E once.
LOG2E = tl.constexpr(1 / math.log(2))
LN2 = tl.constexpr(math.log(2))
#: Entries of a tile in float32 and entries per thread, of the forward and the backward kernel.
FORWARD_TILE, BACKWARD_TILE = (2048, 16), (2048, 8)
#: The fewest channels of a tile (each tile stores its own partial sums of dB and dC) and the most warps of a program.
MIN_CHANNELS, MAX_WARPS = 16, 16
#: Registers per thread of the backward kernel in float32: few enough for two programs per multiprocessor, which is a
#: third faster.
MAX_REGISTERS = 128
#: Groups of steps of the forward kernel whose inputs are on their way to shared memory at the same time, plus one.
FORWARD_STAGES = 2
#: Eviction policies of the loads for recomputing states and for the backward steps. Because they differ, the compiler
#: does not merge the two loads of an input; held in between, the inputs of four steps would need the registers that
#: the states are in.
FORWARD_POLICY, BACKWARD_POLICY = tl.constexpr("evict_last"), tl.constexpr("")
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["L", "checkpoints_per_row", "rows_per_replica"]


@triton.jit
def channel_tile(A, D: tl.constexpr, rows_per_replica, N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr):
    """Return the tile of this program: row, channels, entries, offsets and mask (DB, NP), A log2(e)."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * DB + tl.arange(0, DB)
    n = tl.arange(0, NP)
    offsets = d[:, None] * N + n[None, :]
    mask = (d < D)[:, None] & (n < N)[None, :]
    A2 = tl.load(A + row // rows_per_replica * D * N + offsets, mask=mask, other=0.0) * LOG2E
    return row, d, n, offsets, mask, A2


@triton.jit
def load_vector(pointer, i, size, FULL: tl.constexpr, POLICY: tl.constexpr):
    """Load entries i of a vector, zero from `size` on; FULL says that all i are below `size`."""
    if FULL:
        return tl.load(pointer + i, eviction_policy=POLICY)
    else:
        return tl.load(pointer + i, mask=i < size, other=0.0, eviction_policy=POLICY)


@triton.jit
def load_inputs(
    x, delta, B, t, length, d, n, D, N: tl.constexpr, NP: tl.constexpr, EVEN: tl.constexpr, POLICY: tl.constexpr
):
    """Load x, delta (DB) and B (NP) of step t; past the end of the row the last ones, with delta = 0.

    Without `length` no step is past the end.
    """
    s = t
    if length is not None:
        s = tl.minimum(t, length - 1)
    delta_t = load_vector(delta + s * D, d, D, EVEN, POLICY)
    if length is not None:
        delta_t = tl.where(t < length, delta_t, 0.0)
    return load_vector(x + s * D, d, D, EVEN, POLICY), delta_t, load_vector(B + s * N, n, N, N == NP, POLICY)


@triton.jit
def next_state(h, x, delta, B, t, length, d, n, A2, D, N: tl.constexpr, EVEN: tl.constexpr):
    """Return the state after step t, from the one before it."""
    x_t, delta_t, B_t = load_inputs(x, delta, B, t, length, d, n, D, N, A2.shape[1], EVEN, FORWARD_POLICY)
    return tl.exp2(delta_t[:, None] * A2) * h + (delta_t * x_t)[:, None] * B_t[None, :]


@triton.jit
def step_forward(h, x, delta, B, C, t, d, n, A2, D, N: tl.constexpr, EVEN: tl.constexpr, NEAR: tl.constexpr):
    """Return the state after step t, and the partial sums (DB, NP / NEAR, 1) over n of C_t times that state."""
    h = next_state(h, x, delta, B, t, None, d, n, A2, D, N, EVEN)
    C_t = load_vector(C + t * N, n, N, A2.shape[1] == N, FORWARD_POLICY)
    return h, sum_neighbours(h * C_t[None, :], NEAR)[:, :, None]


@triton.jit(do_not_specialize=ANY_SIZE)
def selective_forward_kernel(
    x, delta, A, B, C, h0, lengths, y, final, checkpoints, L, checkpoints_per_row, rows_per_replica,
    D: tl.constexpr, N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, STRIDE: tl.constexpr, EVEN: tl.constexpr,
    NEAR: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Fill y (rows, L, D), final (rows, D, N) and checkpoints (rows, checkpoints_per_row, D, N).

    `checkpoints` may be None.
    """
    row, d, n, offsets, mask, A2 = channel_tile(A, D, rows_per_replica, N, DB, NP)
    h = tl.zeros((DB, NP), A2.dtype)
    if h0 is not None:
        h = tl.load(h0 + row * D * N + offsets, mask=mask, other=0.0)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    x, delta, y = x + row * L * D, delta + row * L * D, y + row * L * D
    B, C = B + row * L * N, C + row * L * N

    steps = tl.arange(0, 4)
    groups = length // GROUP
    row_checkpoints = None if checkpoints is None else checkpoints + row * checkpoints_per_row * D * N + offsets
    for group in tl.range(0, groups, num_stages=STAGES):
        t = group * GROUP
        if row_checkpoints is not None:
            tl.store(row_checkpoints + (t // STRIDE) * D * N, h, mask=mask & (t % STRIDE == 0))
        h, y0 = step_forward(h, x, delta, B, C, t, d, n, A2, D, N, EVEN, NEAR)
        h, y1 = step_forward(h, x, delta, B, C, t + 1, d, n, A2, D, N, EVEN, NEAR)
        h, y2 = step_forward(h, x, delta, B, C, t + 2, d, n, A2, D, N, EVEN, NEAR)
        h, y3 = step_forward(h, x, delta, B, C, t + 3, d, n, A2, D, N, EVEN, NEAR)
        y_tile = sum_last_axis(tl.permute(stack_four(y0, y1, y2, y3), (0, 3, 2, 1)), FOLD)  # (DB, 4, 1)
        y_pointers = y + (t + steps)[None, :] * D + d[:, None]
        tl.store(y_pointers, tl.reshape(y_tile, (DB, 4)), mask=(d < D)[:, None])
    for t in range(groups * GROUP, length):  # fewer steps than a group
        if row_checkpoints is not None:
            tl.store(row_checkpoints + (t // STRIDE) * D * N, h, mask=mask & (t % STRIDE == 0))
        h = next_state(h, x, delta, B, t, None, d, n, A2, D, N, EVEN)
        C_t = load_vector(C + t * N, n, N, N == NP, FORWARD_POLICY)
        tl.store(y + t * D + d, tl.sum(h * C_t[None, :], axis=1), mask=d < D)
    tl.store(final + row * D * N + offsets, h, mask=mask)
    for t in range(length, L):  # past the end of the row
        tl.store(y + t * D + d, tl.zeros((DB,), A2.dtype), mask=d < D)


@triton.jit
def step_backward(
    g, dA, previous_h, h, x, delta, B, C, grad_y, t, length, d, A2, D,
    N: tl.constexpr, EVEN: tl.constexpr, NEAR: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Take the gradients of h_t (g) and A back through step t; `previous_h` is h_{t-1}, `h` is h_t.

    Returns both gradients, the partial sums (DB, NP / NEAR, 2) over n of g B_t and of g decay_t h_{t-1} A2, and the
    partial sums (W, NP, 2) of dB_t and dC_t.
    """
    n = tl.arange(0, A2.shape[1])
    x_t, delta_t, B_t = load_inputs(x, delta, B, t, length, d, n, D, N, A2.shape[1], EVEN, BACKWARD_POLICY)
    dC_part = tl.zeros((W, A2.shape[1]), g.dtype)
    if grad_y is not None:
        s = tl.minimum(t, length - 1)
        dy_t = tl.where(t < length, load_vector(grad_y + s * D, d, D, EVEN, BACKWARD_POLICY), 0.0)
        g += dy_t[:, None] * load_vector(C + s * N, n, N, A2.shape[1] == N, BACKWARD_POLICY)[None, :]
        dC_part = sum_channels(dy_t[:, None] * h, W)
    dB_part = sum_channels((delta_t * x_t)[:, None] * g, W)
    ddrive = sum_neighbours(g * B_t[None, :], NEAR)
    g *= tl.exp2(delta_t[:, None] * A2)
    g_h = g * previous_h
    dA += delta_t[:, None] * g_h
    return g, dA, tl.join(ddrive, sum_neighbours(g_h * A2, NEAR)), tl.join(dB_part, dC_part)


@triton.jit(do_not_specialize=ANY_SIZE)
def selective_backward_kernel(
    grad_y, grad_final, x, delta, A, B, C, lengths, checkpoints, dx, ddelta, dA_rows, dBC, dh0,
    L, checkpoints_per_row, rows_per_replica,
    D: tl.constexpr, N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, STRIDE: tl.constexpr, EVEN: tl.constexpr,
    NEAR: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of x, delta, A, B, C and h0.

    dx, ddelta: (rows, L, D); dA_rows, dh0: (rows, D, N); dBC: (2, rows, blocks of channels, L, N).
    """
    part = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)  # index of its partial sums of dB, dC
    row, d, n, offsets, mask, A2 = channel_tile(A, D, rows_per_replica, N, DB, NP)
    g = tl.zeros((DB, NP), A2.dtype)
    dA = tl.zeros((DB, NP), A2.dtype)
    if grad_final is not None:
        g = tl.load(grad_final + row * D * N + offsets, mask=mask, other=0.0)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    x, delta, dx, ddelta = x + row * L * D, delta + row * L * D, dx + row * L * D, ddelta + row * L * D
    B, C = B + row * L * N, C + row * L * N
    if grad_y is not None:
        grad_y += row * L * D

    steps = tl.arange(0, 4)
    pair = tl.arange(0, 2).to(tl.int64) * tl.num_programs(0) * tl.num_programs(1)
    dBC_pointers = dBC + (pair[:, None, None] + part) * L * N + n[None, None, :]  # (2, 1, NP)
    groups = tl.cdiv(length, GROUP)
    for i_back in range(groups):
        t = (groups - 1 - i_back) * GROUP
        checkpoint = t // STRIDE
        h0 = tl.load(checkpoints + (row * checkpoints_per_row + checkpoint) * D * N + offsets, mask=mask, other=0.0)
        for s in range(checkpoint * STRIDE, t):
            h0 = next_state(h0, x, delta, B, s, length, d, n, A2, D, N, EVEN)
        h1 = next_state(h0, x, delta, B, t, length, d, n, A2, D, N, EVEN)
        h2 = next_state(h1, x, delta, B, t + 1, length, d, n, A2, D, N, EVEN)
        h3 = next_state(h2, x, delta, B, t + 2, length, d, n, A2, D, N, EVEN)
        h4 = next_state(h3, x, delta, B, t + 3, length, d, n, A2, D, N, EVEN)
        g, dA, r3, c3 = step_backward(g, dA, h3, h4, x, delta, B, C, grad_y, t + 3, length, d, A2, D, N, EVEN, NEAR, W)
        g, dA, r2, c2 = step_backward(g, dA, h2, h3, x, delta, B, C, grad_y, t + 2, length, d, A2, D, N, EVEN, NEAR, W)
        g, dA, r1, c1 = step_backward(g, dA, h1, h2, x, delta, B, C, grad_y, t + 1, length, d, A2, D, N, EVEN, NEAR, W)
        g, dA, r0, c0 = step_backward(g, dA, h0, h1, x, delta, B, C, grad_y, t, length, d, A2, D, N, EVEN, NEAR, W)
        t4 = t + steps
        ddrive, ddecay = tl.split(sum_last_axis(tl.permute(stack_four(r0, r1, r2, r3), (0, 3, 2, 1)), FOLD))  # (DB, 4)
        group_offsets = t4[None, :] * D + d[:, None]
        group_mask = (t4 < L)[None, :] & (d < D)[:, None]
        in_length = group_mask & (t4 < length)[None, :]
        x_t = tl.load(x + group_offsets, mask=in_length, other=0.0)
        delta_t = tl.load(delta + group_offsets, mask=in_length, other=0.0)
        tl.store(dx + group_offsets, ddrive * delta_t, mask=group_mask)
        tl.store(ddelta + group_offsets, tl.where(in_length, ddecay * LN2 + ddrive * x_t, 0.0), mask=group_mask)
        dBC_tile = sum_last_axis(tl.permute(stack_four(c0, c1, c2, c3), (2, 3, 1, 0)), FOLD)  # (2, 4, NP)
        tl.store(dBC_pointers + t4[None, :, None] * N, dBC_tile, mask=(t4 < L)[None, :, None] & (n < N)[None, None, :])

    tl.store(dA_rows + row * D * N + offsets, dA, mask=mask)
    if dh0 is not None:
        tl.store(dh0 + row * D * N + offsets, g, mask=mask)
    for t in range(groups * GROUP, L):  # past the end of the row
        tl.store(dx + t * D + d, tl.zeros((DB,), A2.dtype), mask=d < D)
        tl.store(ddelta + t * D + d, tl.zeros((DB,), A2.dtype), mask=d < D)
        tl.store(dBC_pointers + t * N, tl.zeros((2, 1, NP), A2.dtype), mask=(n < N)[None, None, :])


def tile_constants(D: int, N: int, dtype: torch.dtype, tile: tuple[int, int]) -> dict[str, Any]:
    """Return the compile-time constants of a kernel and its warps; `tile` is its entries and entries per thread.

    In float64 a tile has half as many channels. NEAR entries of n, 16 bytes, are what a thread loads at once.
    """
    NP = max(2, next_power_of_two(N))
    size = dtype.itemsize // 4
    DB = max(2, min(next_power_of_two(D), max(MIN_CHANNELS, tile[0] // NP) // size))
    warps = max(1, min(MAX_WARPS, DB * NP * size // (32 * tile[1])))
    near = min(NP, 16 // dtype.itemsize)
    return {"D": D, "N": N, "DB": DB, "NP": NP, "EVEN": D % DB == 0, "NEAR": near, "num_warps": warps}


def forward_constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constants of the forward kernel."""
    return {**tile_constants(D, N, dtype, FORWARD_TILE), "STRIDE": STRIDE, "STAGES": FORWARD_STAGES}


def backward_constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the constants of the backward kernel; W threads share the channels of an entry n."""
    constants = tile_constants(D, N, dtype, BACKWARD_TILE)
    threads = max(1, min(constants["DB"], 32 * constants["num_warps"] * constants["NEAR"] // constants["NP"]))
    return {**constants, "STRIDE": STRIDE, "W": threads, **register_limit(dtype, MAX_REGISTERS)}


def forward(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y (R, B, L, D), final (R, B, D, N) and checkpoints (R, B, L / STRIDE, D, N).

    x, delta (R, B, L, D), A (R, D, N), B, C (R, B, L, N), h0 (R, B, D, N), lengths (R, B). The checkpoints are empty
    unless `needs_grad`.
    """
    R, rows, L, D = x.shape
    N = A.shape[-1]
    constants = forward_constants(D, N, x.dtype)
    checkpoints_per_row = triton.cdiv(L, STRIDE)
    y, final = torch.empty_like(x), x.new_empty(R, rows, D, N)
    checkpoints = x.new_empty(R, rows, checkpoints_per_row, D, N) if needs_grad else empty_placeholder(x)
    if y.numel():
        selective_forward_kernel[(R * rows, triton.cdiv(D, constants["DB"]))](
            x, delta, A, B, C, h0, lengths, y, final, checkpoints if needs_grad else None,
            L, checkpoints_per_row, rows, **constants,
        )  # fmt: skip
    return y, final, checkpoints


def backward(
    grad_y: Tensor | None, grad_final: Tensor | None,
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None,
    y: Tensor, final: Tensor, checkpoints: Tensor, needs_grad: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of x, delta, A, B, C and h0; the equations are in the CPU implementation."""
    R, rows, L, D = x.shape
    N = A.shape[-1]
    constants = backward_constants(D, N, x.dtype)
    channel_blocks = triton.cdiv(D, constants["DB"])
    dx, ddelta = torch.empty_like(x), torch.empty_like(x)
    dh0 = None if h0 is None else torch.empty_like(h0)
    dA = x.new_empty(R, rows, D, N)
    dBC = x.new_empty(2, R, rows, channel_blocks, L, N)
    if x.numel():
        selective_backward_kernel[(R * rows, channel_blocks)](
            grad_y, grad_final, x, delta, A, B, C, lengths, checkpoints, dx, ddelta, dA, dBC, dh0,
            L, checkpoints.shape[2], rows, **constants,
        )  # fmt: skip
    dB, dC = dBC.sum(3)
    return dx, ddelta, dA.sum(1), dB, dC, dh0
