# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Elman scan on NVIDIA GPUs: one kernel forwards, one backwards, whatever the length.

A program takes TB rows of one replica and goes through time; the gradient of W is a batched product afterwards. Up to
LARGEST_RESIDENT entries W and the states stay on chip, and what a step reads is fetched while the step before is
computed. Larger matrices are read from the caches at every step, in tiles, and so is the state, which every step writes
to memory anyhow; a barrier stands between the two.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.elman.cpu import weight_gradient
from sdssm.ops.padding import power_of_two

#: Rows a program: the least that tensor cores multiply.
ROWS = 16
#: Entries of the largest state whose W stays on chip: 64 KiB of float32, a quarter of a multiprocessor's registers.
LARGEST_RESIDENT = 128
#: A tile of a W that does not: so many entries of the state before times so many of the next.
CHUNK_IN, CHUNK_OUT = 32, 64


def constants(dtype: torch.dtype, size: int, resident: int) -> dict[str, Any]:
    """What the kernels are compiled for. float32 is multiplied as three tensor-core products of its parts, which
    keeps float32's exactness; TF32 alone would not.
    """
    wide = dtype == torch.float64
    return {
        "N": size,
        "NP": max(16, power_of_two(size)) if size <= resident else CHUNK_OUT,
        "TB": ROWS,
        "CK": CHUNK_IN,
        "RESIDENT": size <= resident,
        "PRECISION": "ieee" if wide else "tf32x3",
        "ACC": tl.float64 if wide else tl.float32,
    }


@triton.jit
def tile_rows(lengths, L, B, TB: tl.constexpr):
    """The rows of a program (TB,): their numbers among all, which of them exist, and their lengths."""
    string = tl.program_id(0) * TB + tl.arange(0, TB)
    here = string < B
    row = tl.program_id(1).to(tl.int64) * B + string
    length = tl.where(here, L, 0)
    if lengths is not None:
        length = tl.load(lengths + row, mask=here, other=0).to(tl.int32)
    return row, here, length


@triton.jit
def matrix(W, N: tl.constexpr, NP: tl.constexpr, TRANSPOSED: tl.constexpr):
    """W (N, N) as a tile (NP, NP); transposed, as rows are multiplied with it from the left."""
    i = tl.arange(0, NP)[:, None]
    j = tl.arange(0, NP)[None, :]
    at = j * N + i if TRANSPOSED else i * N + j
    return tl.load(W + at, mask=(i < N) & (j < N), other=0.0)


@triton.jit
def streamed(
    x, here, W, n, N: tl.constexpr, K: tl.constexpr, TB: tl.constexpr, NP: tl.constexpr, CK: tl.constexpr,
    TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Columns n of x W for W (K, N), or of x W^T for W (N, K): rows of K entries at the addresses x (TB,)."""
    total = tl.zeros((TB, NP), ACC)
    for first in range(0, K, CK):
        k = first + tl.arange(0, CK)
        part = tl.load(x[:, None] + k[None, :], mask=here[:, None] & (k < K)[None, :], other=0.0)
        at = n[None, :] * K + k[:, None] if TRANSPOSED else k[:, None] * N + n[None, :]
        tile = tl.load(W + at, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        total += tl.dot(part, tile, input_precision=PRECISION, out_dtype=ACC)
    return total


@triton.jit(do_not_specialize=["L", "B"])
def forward_kernel(
    W, drive, x0, lengths, states, final, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """h_t = relu(W h_{t-1} + drive_t)."""
    row, here, length = tile_rows(lengths, L, B, TB)
    longest = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = here[:, None] & (n < N)[None, :]
        once, every = row[:, None] * N + n[None, :], row[:, None] * L * N + n[None, :]
        w = matrix(W, N, NP, True)
        x = tl.zeros((TB, NP), ACC)
        if x0 is not None:
            x = tl.load(x0 + once, mask=mask, other=0.0)
        d = tl.load(drive + every, mask=mask, other=0.0)
        for t in range(longest):
            ahead = tl.load(drive + every + tl.minimum(t + 1, L - 1) * N, mask=mask, other=0.0)
            z = d + tl.dot(x, w, input_precision=PRECISION, out_dtype=ACC)
            z = tl.where(z <= 0.0, 0.0, z)  # what is not a number stays so
            inside = (t < length)[:, None]
            x = tl.where(inside, z, x)
            tl.store(states + every + t * N, tl.where(inside, z, 0.0), mask=mask)
            d = ahead
        tl.store(final + once, x, mask=mask)
    else:
        for t in range(longest):
            for first in range(0, N, NP):
                mask = here[:, None] & (first + n < N)[None, :]
                once, every = row[:, None] * N + first + n[None, :], row[:, None] * L * N + first + n[None, :]
                z = tl.load(drive + every + t * N, mask=mask, other=0.0)
                if t > 0:
                    z += streamed(states + (row * L + t - 1) * N, here, W, first + n, N, N, TB, NP, CK, True,
                                  PRECISION, ACC)  # fmt: skip
                elif x0 is not None:
                    z += streamed(x0 + row * N, here, W, first + n, N, N, TB, NP, CK, True, PRECISION, ACC)
                z = tl.where((z <= 0.0) | (t >= length)[:, None], 0.0, z)
                tl.store(states + every + t * N, z, mask=mask)
                tl.store(final + once, z, mask=mask & (t == length - 1)[:, None])
            tl.debug_barrier()  # the next step reads what other threads wrote
    for first in range(0, N, NP):
        mask = here[:, None] & (first + n < N)[None, :]
        nothing = tl.zeros((TB, NP), ACC)
        for t in range(longest, L):  # past the length of all rows
            tl.store(states + (row[:, None] * L + t) * N + first + n[None, :], nothing, mask=mask)
        if not RESIDENT:
            once = row[:, None] * N + first + n[None, :]
            x = nothing
            if x0 is not None:
                x = tl.load(x0 + once, mask=mask, other=0.0)
            tl.store(final + once, x, mask=mask & (length == 0)[:, None])


@triton.jit
def passed(grad_states, grad_final, states, every, once, t, length, mask, L, N: tl.constexpr):
    """What reaches h_t from outside, and h_t itself: with `final` where t is a row's last step."""
    h = tl.load(states + every + t * N, mask=mask, other=0.0)
    g = tl.zeros_like(h)
    if grad_states is not None:
        g += tl.load(grad_states + every + t * N, mask=mask, other=0.0)
    if grad_final is not None:
        g += tl.load(grad_final + once, mask=mask & (t == length - 1)[:, None], other=0.0)
    return g, h


@triton.jit(do_not_specialize=["L", "B"])
def backward_kernel(
    grad_states, grad_final, W, lengths, states, adjoints, dx0, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """adjoint_t = (outside_t + W^T adjoint_{t+1}) where h_t > 0, else 0; states past an end are zero, so these too."""
    row, here, length = tile_rows(lengths, L, B, TB)
    longest = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = here[:, None] & (n < N)[None, :]
        once, every = row[:, None] * N + n[None, :], row[:, None] * L * N + n[None, :]
        w = matrix(W, N, NP, False)
        dh = tl.zeros((TB, NP), ACC)
        g, h = passed(grad_states, grad_final, states, every, once, tl.maximum(longest - 1, 0), length, mask, L, N)
        for back in range(longest):
            t = longest - 1 - back
            g_ahead, h_ahead = passed(
                grad_states, grad_final, states, every, once, tl.maximum(t - 1, 0), length, mask, L, N
            )
            dz = tl.where(h > 0.0, g + dh, 0.0)
            tl.store(adjoints + every + t * N, dz, mask=mask)
            dh = tl.dot(dz, w, input_precision=PRECISION, out_dtype=ACC)
            g, h = g_ahead, h_ahead
        if dx0 is not None:
            if grad_final is not None:
                dh += tl.load(grad_final + once, mask=mask & (length == 0)[:, None], other=0.0)
            tl.store(dx0 + once, dh, mask=mask)
    else:
        for back in range(longest):
            t = longest - 1 - back
            for first in range(0, N, NP):
                mask = here[:, None] & (first + n < N)[None, :]
                once, every = row[:, None] * N + first + n[None, :], row[:, None] * L * N + first + n[None, :]
                g, h = passed(grad_states, grad_final, states, every, once, t, length, mask, L, N)
                if back > 0:
                    g += streamed(adjoints + (row * L + t + 1) * N, here, W, first + n, N, N, TB, NP, CK, False,
                                  PRECISION, ACC)  # fmt: skip
                tl.store(adjoints + every + t * N, tl.where(h > 0.0, g, 0.0), mask=mask)
            tl.debug_barrier()  # the next step reads what other threads wrote
        if dx0 is not None:
            for first in range(0, N, NP):
                mask = here[:, None] & (first + n < N)[None, :]
                once = row[:, None] * N + first + n[None, :]
                # Where no row of the tile has a step, nothing was written that could be read.
                there = here & (length > 0)
                dh = streamed(adjoints + row * L * N, there, W, first + n, N, N, TB, NP, CK, False, PRECISION, ACC)
                if grad_final is not None:
                    dh += tl.load(grad_final + once, mask=mask & (length == 0)[:, None], other=0.0)
                tl.store(dx0 + once, dh, mask=mask)
    for first in range(0, N, NP):
        mask = here[:, None] & (first + n < N)[None, :]
        nothing = tl.zeros((TB, NP), ACC)
        for t in range(longest, L):  # past the length of all rows
            tl.store(adjoints + (row[:, None] * L + t) * N + first + n[None, :], nothing, mask=mask)


def launch(W: Tensor, rows: int) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid, and what the kernels are compiled for.

    Tiles of a W that is streamed are fetched ahead by Triton; in the other case the kernel looks ahead itself.
    """
    R, _, N = W.shape
    options = constants(W.dtype, N, LARGEST_RESIDENT)
    warps = {"num_warps": 4 if N <= 64 else 8, "num_stages": 1 if options["RESIDENT"] else 3}
    return (triton.cdiv(rows, ROWS), R), options | warps


def forward(W: Tensor, drive: Tensor, x0: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """states (R, B, L, N), final (R, B, N)."""
    R, B, L, N = drive.shape
    states, final = torch.empty_like(drive), drive.new_empty(R, B, N)
    grid, options = launch(W, B)
    forward_kernel[grid](W, drive, x0, lengths, states, final, L, B, **options)
    return states, final


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    W: Tensor,
    drive: Tensor,
    x0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    final: Tensor,
) -> tuple[Tensor | None, ...]:
    """The gradients of W, drive and x0."""
    _, B, L, _ = states.shape
    adjoints = torch.empty_like(states)
    dx0 = None if x0 is None else torch.empty_like(x0)
    grid, options = launch(W, B)
    backward_kernel[grid](grad_states, grad_final, W, lengths, states, adjoints, dx0, L, B, **options)
    return weight_gradient(adjoints, states, x0), adjoints, dx0
