# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Selective scan on NVIDIA GPUs: one program for DB channels of a row, their states (DB, NP) in registers.

Forward, a program goes through the steps and writes y_t only; where a gradient is wanted also the state before every
STRIDE-th step. Backward, it goes by groups of four steps from the last to the first: the state before a group is formed
again from the last one kept, those inside stay in registers. What is summed over channels (dB, dC) or rows (dA) is
written in parts and then added by torch, always in the same order. Past the end of a row delta = 0, which leaves the
state alone.

Backward there are four sums across threads at every step; with shuffles and barriers for each they would cost more
than the recurrence. So a step adds only what a thread has by itself (its neighbours in n, its channels), and the parts
of four steps change hands together: tl.split wants its last axis inside a thread, so `folded` moves them through shared
memory once and adds in registers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.autograd import absent
from sdssm.ops.padding import power_of_two

#: Steps in registers at a time in the gradient: the kernel names four states.
GROUP = tl.constexpr(4)
#: Steps from one kept state to the next, whole groups.
STRIDE = 8
#: exp(v) = exp2(LOG2E v): the GPU has the power of two, and A is multiplied once.
LOG2E = tl.constexpr(1 / math.log(2))
LN2 = tl.constexpr(math.log(2))
#: Numbers of a tile and in each thread, float32. At least 16 channels: every tile writes its own parts of dB and dC.
TILE, EACH, CHANNELS, WARPS = 2048, 8, 16, 16
#: Registers of a thread in the gradient, float32: with so few two programs share a processor, which is a third faster.
REGISTERS = 128
#: How many parts `folded` adds in registers.
FOLD = tl.constexpr(8)
#: Read with different policies, two loads of one number stay two: held from the way there to the way back, the inputs
#: of four steps would take the registers of the states.
THERE, BACK = tl.constexpr("evict_last"), tl.constexpr("")
ANY = ["L", "D", "kept_rows", "rows_per_replica"]


@triton.jit
def some(pointer, i, size, WHOLE: tl.constexpr, POLICY: tl.constexpr):
    """Entries i of a vector, zero from `size` on; WHOLE says that none is."""
    if WHOLE:
        return tl.load(pointer + i, eviction_policy=POLICY)
    else:
        return tl.load(pointer + i, mask=i < size, other=0.0, eviction_policy=POLICY)


@triton.jit
def inputs(x, delta, B, t, stop, d, n, D, N: tl.constexpr, NP: tl.constexpr, EVEN: tl.constexpr, POLICY: tl.constexpr):
    """x, delta (DB) and B (NP) of step t of a row; past its stop those of its last step, and delta = 0."""
    s = tl.minimum(t, stop - 1)
    x_t = some(x + s * D, d, D, EVEN, POLICY)
    delta_t = some(delta + s * D, d, D, EVEN, POLICY)
    return x_t, tl.where(t < stop, delta_t, 0.0), some(B + s * N, n, N, N == NP, POLICY)


@triton.jit
def advanced(h, x, delta, B, t, stop, d, n, A2, D, N: tl.constexpr, EVEN: tl.constexpr):
    """The state after step t, from the one before it."""
    x_t, delta_t, B_t = inputs(x, delta, B, t, stop, d, n, D, N, A2.shape[1], EVEN, THERE)
    return tl.exp2(delta_t[:, None] * A2) * h + (delta_t * x_t)[:, None] * B_t[None, :]


@triton.jit
def over_neighbours(v, NEAR: tl.constexpr):
    """v (DB, NP) summed over NEAR neighbours, those of a thread: (DB, NP / NEAR)."""
    return tl.sum(tl.reshape(v, (v.shape[0], v.shape[1] // NEAR, NEAR)), axis=2)


@triton.jit
def over_channels(v, W: tl.constexpr):
    """v (DB, NP) summed over each W-th channel, those of a thread: (W, NP)."""
    return tl.sum(tl.reshape(v, (v.shape[0] // W, W, v.shape[1])), axis=0)


@triton.jit
def folded(v, TIMES: tl.constexpr):
    """v (I, J, M, K) summed over its last axis; the first halvings, up to TIMES parts, inside a thread."""
    if v.shape[3] == 1:
        return tl.reshape(v, (v.shape[0], v.shape[1], v.shape[2]))
    elif TIMES == 1:
        return tl.sum(v, axis=3)
    else:
        even, odd = tl.split(tl.reshape(v, (v.shape[0], v.shape[1], v.shape[2], v.shape[3] // 2, 2)))
        return folded(even + odd, TIMES // 2)


@triton.jit
def together(v0, v1, v2, v3):
    """Four tensors (I, J, M) side by side: (I, J, M, 4)."""
    return tl.reshape(tl.join(tl.join(v0, v2), tl.join(v1, v3)), (v0.shape[0], v0.shape[1], v0.shape[2], 4))


@triton.jit(do_not_specialize=ANY)
def forward_kernel(
    x, delta, A, B, C, h0, lengths, y, final, kept, L, D, kept_rows, rows_per_replica,
    N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, STRIDE: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """y (rows, L, D), final (rows, D, N) and, where given, kept (rows, kept_rows, D, N)."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * DB + tl.arange(0, DB)
    n = tl.arange(0, NP)
    tile = d[:, None] * N + n[None, :]
    mask = (d < D)[:, None] & (n < N)[None, :]
    A2 = tl.load(A + row // rows_per_replica * D * N + tile, mask=mask, other=0.0) * LOG2E
    h = tl.zeros((DB, NP), A2.dtype)
    if h0 is not None:
        h = tl.load(h0 + row * D * N + tile, mask=mask, other=0.0)
    stop = L
    if lengths is not None:
        stop = tl.load(lengths + row).to(tl.int32)
    x, delta, y = x + row * L * D, delta + row * L * D, y + row * L * D
    B, C = B + row * L * N, C + row * L * N

    for t in range(stop):
        if kept is not None:
            keep = mask & (t % STRIDE == 0)
            tl.store(kept + (row * kept_rows + t // STRIDE) * D * N + tile, h, mask=keep)
        h = advanced(h, x, delta, B, t, stop, d, n, A2, D, N, EVEN)
        C_t = some(C + t * N, n, N, N == NP, THERE)
        tl.store(y + t * D + d, tl.sum(h * C_t[None, :], axis=1), mask=d < D)
    tl.store(final + row * D * N + tile, h, mask=mask)
    for t in range(stop, L):  # past the row's length
        tl.store(y + t * D + d, tl.zeros((DB,), A2.dtype), mask=d < D)


@triton.jit
def back_step(
    g, dA, before, after, x, delta, B, C, dy, t, stop, d, A2, D,
    N: tl.constexpr, EVEN: tl.constexpr, NEAR: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Step t backwards: from the gradients of h_t and A to those of h_{t-1} and A; `before` is h_{t-1}, `after` h_t.

    Also parts: (DB, NP / NEAR, 2) of two sums over n, g B_t and g decay before A2, and (W, NP, 2) of dB_t and dC_t.
    """
    n = tl.arange(0, A2.shape[1])
    x_t, delta_t, B_t = inputs(x, delta, B, t, stop, d, n, D, N, A2.shape[1], EVEN, BACK)
    read = tl.zeros((W, A2.shape[1]), g.dtype)
    if dy is not None:
        s = tl.minimum(t, stop - 1)
        dy_t = tl.where(t < stop, some(dy + s * D, d, D, EVEN, BACK), 0.0)
        g += dy_t[:, None] * some(C + s * N, n, N, A2.shape[1] == N, BACK)[None, :]
        read = over_channels(dy_t[:, None] * after, W)
    driven = over_channels((delta_t * x_t)[:, None] * g, W)
    ddrive = over_neighbours(g * B_t[None, :], NEAR)
    g *= tl.exp2(delta_t[:, None] * A2)
    through_decay = g * before
    dA += delta_t[:, None] * through_decay
    return g, dA, tl.join(ddrive, over_neighbours(through_decay * A2, NEAR)), tl.join(driven, read)


@triton.jit(do_not_specialize=ANY)
def backward_kernel(
    dy, dfinal, x, delta, A, B, C, lengths, kept, dx, ddelta, dA_rows, dBC, dh0, L, D, kept_rows, rows_per_replica,
    N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, STRIDE: tl.constexpr, EVEN: tl.constexpr, NEAR: tl.constexpr,
    W: tl.constexpr,
):  # fmt: skip
    """dx, ddelta (rows, L, D), dA_rows and dh0 (rows, D, N), dBC (2, rows, blocks of channels, L, N)."""
    row = tl.program_id(0).to(tl.int64)
    part = row * tl.num_programs(1) + tl.program_id(1)
    d = tl.program_id(1) * DB + tl.arange(0, DB)
    n = tl.arange(0, NP)
    tile = d[:, None] * N + n[None, :]
    mask = (d < D)[:, None] & (n < N)[None, :]
    A2 = tl.load(A + row // rows_per_replica * D * N + tile, mask=mask, other=0.0) * LOG2E
    g = tl.zeros((DB, NP), A2.dtype)
    dA = tl.zeros((DB, NP), A2.dtype)
    if dfinal is not None:
        g = tl.load(dfinal + row * D * N + tile, mask=mask, other=0.0)
    stop = L
    if lengths is not None:
        stop = tl.load(lengths + row).to(tl.int32)
    x, delta, dx, ddelta = x + row * L * D, delta + row * L * D, dx + row * L * D, ddelta + row * L * D
    B, C = B + row * L * N, C + row * L * N
    if dy is not None:
        dy += row * L * D

    steps = tl.arange(0, 4)
    pair = tl.arange(0, 2).to(tl.int64) * tl.num_programs(0) * tl.num_programs(1)
    columns = dBC + (pair[:, None, None] + part) * L * N + n[None, None, :]  # (2, 1, NP)
    groups = tl.cdiv(stop, GROUP)
    for back in range(groups):
        t = (groups - 1 - back) * GROUP
        from_kept = t // STRIDE
        h0 = tl.load(kept + (row * kept_rows + from_kept) * D * N + tile, mask=mask, other=0.0)
        for s in range(from_kept * STRIDE, t):
            h0 = advanced(h0, x, delta, B, s, stop, d, n, A2, D, N, EVEN)
        h1 = advanced(h0, x, delta, B, t, stop, d, n, A2, D, N, EVEN)
        h2 = advanced(h1, x, delta, B, t + 1, stop, d, n, A2, D, N, EVEN)
        h3 = advanced(h2, x, delta, B, t + 2, stop, d, n, A2, D, N, EVEN)
        h4 = advanced(h3, x, delta, B, t + 3, stop, d, n, A2, D, N, EVEN)
        g, dA, r3, c3 = back_step(g, dA, h3, h4, x, delta, B, C, dy, t + 3, stop, d, A2, D, N, EVEN, NEAR, W)
        g, dA, r2, c2 = back_step(g, dA, h2, h3, x, delta, B, C, dy, t + 2, stop, d, A2, D, N, EVEN, NEAR, W)
        g, dA, r1, c1 = back_step(g, dA, h1, h2, x, delta, B, C, dy, t + 1, stop, d, A2, D, N, EVEN, NEAR, W)
        g, dA, r0, c0 = back_step(g, dA, h0, h1, x, delta, B, C, dy, t, stop, d, A2, D, N, EVEN, NEAR, W)
        at = t + steps
        ddrive, dtime = tl.split(folded(tl.permute(together(r0, r1, r2, r3), (0, 3, 2, 1)), FOLD))  # (DB, 4)
        place = at[None, :] * D + d[:, None]
        here = (at < L)[None, :] & (d < D)[:, None]
        real = here & (at < stop)[None, :]
        x_t, delta_t = tl.load(x + place, mask=real, other=0.0), tl.load(delta + place, mask=real, other=0.0)
        tl.store(dx + place, ddrive * delta_t, mask=here)
        tl.store(ddelta + place, tl.where(real, dtime * LN2 + ddrive * x_t, 0.0), mask=here)
        four = folded(tl.permute(together(c0, c1, c2, c3), (2, 3, 1, 0)), FOLD)  # (2, 4, NP)
        tl.store(columns + at[None, :, None] * N, four, mask=(at < L)[None, :, None] & (n < N)[None, None, :])

    tl.store(dA_rows + row * D * N + tile, dA, mask=mask)
    if dh0 is not None:
        tl.store(dh0 + row * D * N + tile, g, mask=mask)
    for t in range(groups * GROUP, L):  # past the row's length
        tl.store(dx + t * D + d, tl.zeros((DB,), A2.dtype), mask=d < D)
        tl.store(ddelta + t * D + d, tl.zeros((DB,), A2.dtype), mask=d < D)
        tl.store(columns + t * N, tl.zeros((2, 1, NP), A2.dtype), mask=(n < N)[None, None, :])


def constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Sizes of the tiles; float64 takes half as many channels."""
    padded = max(2, power_of_two(N))
    channels = max(2, min(power_of_two(D), max(CHANNELS, TILE // padded) * 4 // dtype.itemsize))
    warps = max(1, min(WARPS, channels * padded * dtype.itemsize // 4 // (32 * EACH)))
    even = D % channels == 0
    return {"N": N, "DB": channels, "NP": padded, "EVEN": even, "STRIDE": STRIDE, "num_warps": warps}


def gradient_constants(sizes: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """What the backward kernel takes besides: NEAR, the 16 bytes of n that a thread loads at once, and W threads that
    share the channels of a column.
    """
    near = min(sizes["NP"], 16 // dtype.itemsize)
    shared = max(1, min(sizes["DB"], 32 * sizes["num_warps"] * near // sizes["NP"]))
    limit = {} if dtype == torch.float64 else {"maxnreg": REGISTERS}
    return {**sizes, "NEAR": near, "W": shared, **limit}


def forward(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None, wanted: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """y (R, B, L, D), final (R, B, D, N) and, if `wanted`, the kept states (R, B, L / STRIDE, D, N), else nothing.

    x, delta (R, B, L, D), A (R, D, N), B, C (R, B, L, N), h0 (R, B, D, N), lengths (R, B).
    """
    R, rows, L, D = x.shape
    N = A.shape[-1]
    sizes = constants(D, N, x.dtype)
    many = triton.cdiv(L, STRIDE)
    y, final = torch.empty_like(x), x.new_empty(R, rows, D, N)
    kept = x.new_empty(R, rows, many, D, N) if wanted else absent(x)
    if y.numel():
        forward_kernel[(R * rows, triton.cdiv(D, sizes["DB"]))](
            x, delta, A, B, C, h0, lengths, y, final, kept if wanted else None, L, D, many, rows, **sizes
        )
    return y, final, kept


def backward(
    grad_y: Tensor | None, grad_final: Tensor | None,
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None,
    y: Tensor, final: Tensor, kept: Tensor, wanted: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of x, delta, A, B, C, h0; see the CPU's for the equations."""
    R, rows, L, D = x.shape
    N = A.shape[-1]
    sizes = constants(D, N, x.dtype)
    parts = triton.cdiv(D, sizes["DB"])
    dx, ddelta = torch.empty_like(x), torch.empty_like(x)
    dh0 = None if h0 is None else torch.empty_like(h0)
    dA = x.new_empty(R, rows, D, N)
    dBC = x.new_empty(2, R, rows, parts, L, N)
    if x.numel():
        backward_kernel[(R * rows, parts)](
            grad_y, grad_final, x, delta, A, B, C, lengths, kept, dx, ddelta, dA, dBC, dh0, L, D, kept.shape[2], rows,
            **gradient_constants(sizes, x.dtype),
        )  # fmt: skip
    dB, dC = dBC.sum(3)
    return dx, ddelta, dA.sum(1), dB, dC, dh0
