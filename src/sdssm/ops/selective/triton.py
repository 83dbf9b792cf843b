# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Selective scan on NVIDIA GPUs: one program for DB channels of a row, their states (DB, NP) in registers.

Forward, a program goes through the steps and writes y_t only; where a gradient is wanted also the state before every
STRIDE-th step. Backward, it goes through groups of four steps from the last to the first: the state before a group is
formed again from the last one kept, those inside stay in registers. What is summed over channels (dB, dC) or rows (dA)
is written in parts and then added by torch, in the same order every time. A step past the end of a row has delta = 0,
which leaves the state alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.scan import power_of_two
from sdssm.ops.functions import absent

#: Steps in registers at a time in the gradient: the kernel names four states.
GROUP = tl.constexpr(4)
#: Steps from one kept state to the next, whole groups.
STRIDE = 8
#: exp(v) = exp2(LOG2E v): the GPU has the power of two, and A is multiplied once.
LOG2E = tl.constexpr(1 / math.log(2))
LN2 = tl.constexpr(math.log(2))
#: Numbers of a tile and in each thread, float32. At least 16 channels: every tile writes its own parts of dB and dC.
TILE, EACH, CHANNELS = 2048, 8, 16
ANY = ["L", "D", "kept_rows", "rows_per_replica"]


@triton.jit
def transition(x, delta, B, row, t, stop, d, n, A2, L, D, N: tl.constexpr):
    """For step t of a row: decay (DB, NP), x, delta, delta x (DB), B (NP); past the row's stop 1 and zeros."""
    inside = t < stop
    place = (row * L + t) * D + d
    x_t = tl.load(x + place, mask=inside & (d < D), other=0.0)
    delta_t = tl.load(delta + place, mask=inside & (d < D), other=0.0)
    B_t = tl.load(B + (row * L + t) * N + n, mask=inside & (n < N), other=0.0)
    return tl.exp2(delta_t[:, None] * A2), x_t, delta_t, delta_t * x_t, B_t


@triton.jit
def advanced(h, x, delta, B, row, t, stop, d, n, A2, L, D, N: tl.constexpr):
    """The state after step t, from the one before it."""
    decay, _, _, drive, B_t = transition(x, delta, B, row, t, stop, d, n, A2, L, D, N)
    return decay * h + drive[:, None] * B_t[None, :]


@triton.jit(do_not_specialize=ANY)
def forward_kernel(
    x, delta, A, B, C, h0, lengths, y, final, kept, L, D, kept_rows, rows_per_replica,
    N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, STRIDE: tl.constexpr,
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

    for t in range(stop):
        if kept is not None:
            keep = mask & (t % STRIDE == 0)
            tl.store(kept + (row * kept_rows + t // STRIDE) * D * N + tile, h, mask=keep)
        C_t = tl.load(C + (row * L + t) * N + n, mask=n < N, other=0.0)
        h = advanced(h, x, delta, B, row, t, stop, d, n, A2, L, D, N)
        tl.store(y + (row * L + t) * D + d, tl.sum(h * C_t[None, :], axis=1), mask=d < D)
    tl.store(final + row * D * N + tile, h, mask=mask)
    nothing = tl.zeros((DB,), A2.dtype)
    for t in range(stop, L):
        tl.store(y + (row * L + t) * D + d, nothing, mask=d < D)


@triton.jit
def back_step(g, dA, before, x, delta, B, C, dy, row, t, stop, d, n, A2, L, D, N: tl.constexpr):
    """Step t backwards: from the gradients of h_t and A to those of h_{t-1} and A; `before` is h_{t-1}.

    Also what step t owns: dx_t, ddelta_t (DB), and these channels' parts of dB_t, dC_t (NP, 2).
    """
    decay, x_t, delta_t, drive, B_t = transition(x, delta, B, row, t, stop, d, n, A2, L, D, N)
    decayed = decay * before
    through_y = tl.zeros_like(g)
    if dy is not None:
        dy_t = tl.load(dy + (row * L + t) * D + d, mask=(t < stop) & (d < D), other=0.0)
        C_t = tl.load(C + (row * L + t) * N + n, mask=(t < stop) & (n < N), other=0.0)
        g += dy_t[:, None] * C_t[None, :]
        through_y = dy_t[:, None] * (decayed + drive[:, None] * B_t[None, :])
    # Sums over channels go from warp to warp: one for both costs half the waiting.
    columns = tl.sum(tl.join(drive[:, None] * g, through_y), axis=0)
    through_decay = g * decayed
    ddrive = tl.sum(g * B_t[None, :], axis=1)
    dtime = tl.sum(through_decay * A2, axis=1) * LN2 + ddrive * x_t
    return g * decay, dA + delta_t[:, None] * through_decay, ddrive * delta_t, tl.where(t < stop, dtime, 0.0), columns


@triton.jit
def together(v0, v1, v2, v3):
    """Four tensors of one shape side by side, (.., 2, 2), so that they are stored at once."""
    return tl.join(tl.join(v0, v2), tl.join(v1, v3))


@triton.jit(do_not_specialize=ANY)
def backward_kernel(
    dy, dfinal, x, delta, A, B, C, lengths, kept, dx, ddelta, dA_rows, dBC, dh0, L, D, kept_rows, rows_per_replica,
    N: tl.constexpr, DB: tl.constexpr, NP: tl.constexpr, STRIDE: tl.constexpr,
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

    steps = tl.arange(0, 4)
    pair = tl.arange(0, 2).to(tl.int64) * tl.num_programs(0) * tl.num_programs(1)
    columns = dBC + (pair[None, :, None] + part) * L * N + n[:, None, None]  # (NP, 2, 1)
    groups = tl.cdiv(stop, GROUP)
    for back in range(groups):
        t = (groups - 1 - back) * GROUP
        from_kept = t // STRIDE
        h0 = tl.load(kept + (row * kept_rows + from_kept) * D * N + tile, mask=mask, other=0.0)
        for s in range(from_kept * STRIDE, t):
            h0 = advanced(h0, x, delta, B, row, s, stop, d, n, A2, L, D, N)
        h1 = advanced(h0, x, delta, B, row, t, stop, d, n, A2, L, D, N)
        h2 = advanced(h1, x, delta, B, row, t + 1, stop, d, n, A2, L, D, N)
        h3 = advanced(h2, x, delta, B, row, t + 2, stop, d, n, A2, L, D, N)
        g, dA, x3, t3, c3 = back_step(g, dA, h3, x, delta, B, C, dy, row, t + 3, stop, d, n, A2, L, D, N)
        g, dA, x2, t2, c2 = back_step(g, dA, h2, x, delta, B, C, dy, row, t + 2, stop, d, n, A2, L, D, N)
        g, dA, x1, t1, c1 = back_step(g, dA, h1, x, delta, B, C, dy, row, t + 1, stop, d, n, A2, L, D, N)
        g, dA, x0, t0, c0 = back_step(g, dA, h0, x, delta, B, C, dy, row, t, stop, d, n, A2, L, D, N)
        inside = t + steps < L
        place = (row * L + t + steps[None, :]) * D + d[:, None]
        here = inside[None, :] & (d < D)[:, None]
        tl.store(dx + place, tl.reshape(together(x0, x1, x2, x3), (DB, 4)), mask=here)
        tl.store(ddelta + place, tl.reshape(together(t0, t1, t2, t3), (DB, 4)), mask=here)
        four = tl.reshape(together(c0, c1, c2, c3), (NP, 2, 4))
        tl.store(columns + (t + steps)[None, None, :] * N, four, mask=inside[None, None, :] & (n < N)[:, None, None])

    tl.store(dA_rows + row * D * N + tile, dA, mask=mask)
    if dh0 is not None:
        tl.store(dh0 + row * D * N + tile, g, mask=mask)
    no_channel = tl.zeros((DB,), A2.dtype)
    for t in range(groups * GROUP, L):  # past the row's length
        tl.store(dx + (row * L + t) * D + d, no_channel, mask=d < D)
        tl.store(ddelta + (row * L + t) * D + d, no_channel, mask=d < D)
        tl.store(columns + t * N, tl.zeros((NP, 2, 1), A2.dtype), mask=(n < N)[:, None, None])


def constants(D: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Sizes of the tiles; float64 takes half as many channels."""
    padded = max(2, power_of_two(N))
    channels = max(2, min(power_of_two(D), max(CHANNELS, TILE // padded) * 4 // dtype.itemsize))
    warps = max(1, min(8, channels * padded * dtype.itemsize // 4 // (32 * EACH)))
    return {"N": N, "DB": channels, "NP": padded, "STRIDE": STRIDE, "num_warps": warps}


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
            **sizes,
        )  # fmt: skip
    dB, dC = dBC.sum(3)
    return dx, ddelta, dA.sum(1), dB, dC, dh0
