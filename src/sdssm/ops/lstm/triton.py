# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""LSTM scan on NVIDIA GPUs: one kernel forwards, one backwards, made as those of the Elman scan are.

Up to LARGEST_RESIDENT entries the four matrices of the gates stay on chip. Kept for the gradient are the gates as they
were used, (R, B, L, 4N), and the cells. With larger states a program goes through memory: h_{t-1} from `states`,
c_{t-1} from `cells`, backwards the adjoint of the gates, and the gradient of the cell from where it leaves it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.autograd import absent
from sdssm.ops.elman.cpu import weight_gradient
from sdssm.ops.elman.triton import ROWS, constants, matrix, streamed, tile_rows
from sdssm.ops.lstm.gates import add_streamed, closed, four, opened, product, put_four

#: Entries of the largest state whose four matrices stay on chip: 64 KiB of them in float32.
LARGEST_RESIDENT = {torch.float32: 64, torch.float64: 32}
#: So many programs run side by side, one a multiprocessor as the matrices fill it; where more would be needed, each
#: takes twice the rows.
PROGRAMS = 128


@triton.jit(do_not_specialize=["L", "B"])
def forward_kernel(
    W, drive, x0, c0, lengths, states, final, cell, gates, cells, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """c_t = f c_{t-1} + i g, h_t = o tanh(c_t); i, f, g, o from W h_{t-1} + drive_t. `cells` may lack if RESIDENT."""
    row, here, length = tile_rows(lengths, L, B, TB)
    longest = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * 4 * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = here[:, None] & (n < N)[None, :]
        once, every = row[:, None] * N + n[None, :], row[:, None] * L * N + n[None, :]
        wide = row[:, None] * L * 4 * N + n[None, :]
        wi, wf = matrix(W, N, NP, True), matrix(W + N * N, N, NP, True)
        wg, wo = matrix(W + 2 * N * N, N, NP, True), matrix(W + 3 * N * N, N, NP, True)
        x = tl.zeros((TB, NP), ACC)
        c = tl.zeros((TB, NP), ACC)
        if x0 is not None:
            x = tl.load(x0 + once, mask=mask, other=0.0)
        if c0 is not None:
            c = tl.load(c0 + once, mask=mask, other=0.0)
        i, f, g, o = four(drive + wide, mask, N)
        for t in range(longest):
            i_next, f_next, g_next, o_next = four(drive + wide + tl.minimum(t + 1, L - 1) * 4 * N, mask, N)
            i += product(x, wi, PRECISION, ACC)
            f += product(x, wf, PRECISION, ACC)
            g += product(x, wg, PRECISION, ACC)
            o += product(x, wo, PRECISION, ACC)
            i, f, g, o, new, h = opened(i, f, g, o, c)
            inside = (t < length)[:, None]
            x, c = tl.where(inside, h, x), tl.where(inside, new, c)
            tl.store(states + every + t * N, tl.where(inside, h, 0.0), mask=mask)
            if gates is not None:
                put_four(gates + wide + t * 4 * N, i, f, g, o, mask, N)
                tl.store(cells + every + t * N, c, mask=mask)
            i, f, g, o = i_next, f_next, g_next, o_next
        tl.store(final + once, x, mask=mask)
        tl.store(cell + once, c, mask=mask)
    else:
        for t in range(longest):
            for first in range(0, N, NP):
                m = first + n
                mask = here[:, None] & (m < N)[None, :]
                once, every = row[:, None] * N + m[None, :], row[:, None] * L * N + m[None, :]
                wide = (row[:, None] * L + t) * 4 * N + m[None, :]
                i, f, g, o = four(drive + wide, mask, N)
                c = tl.zeros((TB, NP), ACC)
                if t > 0:
                    x = states + (row * L + t - 1) * N
                    i, f, g, o = add_streamed(i, f, g, o, x, here, W, m, N, CK, PRECISION, ACC)
                    c = tl.load(cells + every + (t - 1) * N, mask=mask, other=0.0)
                else:
                    if x0 is not None:
                        i, f, g, o = add_streamed(i, f, g, o, x0 + row * N, here, W, m, N, CK, PRECISION, ACC)
                    if c0 is not None:
                        c = tl.load(c0 + once, mask=mask, other=0.0)
                i, f, g, o, c, h = opened(i, f, g, o, c)
                tl.store(states + every + t * N, tl.where((t < length)[:, None], h, 0.0), mask=mask)
                tl.store(cells + every + t * N, c, mask=mask)
                if gates is not None:
                    put_four(gates + wide, i, f, g, o, mask, N)
                tl.store(final + once, h, mask=mask & (t == length - 1)[:, None])
                tl.store(cell + once, c, mask=mask & (t == length - 1)[:, None])
            tl.debug_barrier()  # the next step reads what other threads wrote
    for first in range(0, N, NP):
        mask = here[:, None] & (first + n < N)[None, :]
        nothing = tl.zeros((TB, NP), ACC)
        for t in range(longest, L):  # past the length of all rows
            tl.store(states + (row[:, None] * L + t) * N + first + n[None, :], nothing, mask=mask)
        if not RESIDENT:
            once = row[:, None] * N + first + n[None, :]
            x = nothing
            c = nothing
            if x0 is not None:
                x = tl.load(x0 + once, mask=mask, other=0.0)
            if c0 is not None:
                c = tl.load(c0 + once, mask=mask, other=0.0)
            tl.store(final + once, x, mask=mask & (length == 0)[:, None])
            tl.store(cell + once, c, mask=mask & (length == 0)[:, None])


@triton.jit
def passed(grad_states, grad_final, grad_cell, gates, cells, c0, row, m, t, length, mask, L, N: tl.constexpr):
    """What a step backwards reads: gradients that reach h_t and c_t from outside, the gates, c_t and c_{t-1}."""
    once, every = row[:, None] * N + m[None, :], (row[:, None] * L + t) * N + m[None, :]
    i, f, g, o = four(gates + (row[:, None] * L + t) * 4 * N + m[None, :], mask, N)
    c = tl.load(cells + every, mask=mask, other=0.0)
    before = tl.load(cells + every - N, mask=mask & (t > 0), other=0.0)
    if c0 is not None:
        before += tl.load(c0 + once, mask=mask & (t == 0), other=0.0)
    last = mask & (t == length - 1)[:, None]
    dh = tl.zeros_like(c)
    dc = tl.zeros_like(c)
    if grad_states is not None:
        dh += tl.load(grad_states + every, mask=mask, other=0.0)
    if grad_final is not None:
        dh += tl.load(grad_final + once, mask=last, other=0.0)
    if grad_cell is not None:
        dc += tl.load(grad_cell + once, mask=last, other=0.0)
    return i, f, g, o, c, before, dh, dc


@triton.jit(do_not_specialize=["L", "B"])
def backward_kernel(
    grad_states, grad_final, grad_cell, W, c0, lengths, gates, cells, adjoints, dx0, dc0, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The adjoints of drive_t from the last step to the first. `dx0` and `dc0` are where the rest is left."""
    row, here, length = tile_rows(lengths, L, B, TB)
    longest = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * 4 * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = here[:, None] & (n < N)[None, :]
        once, wide = row[:, None] * N + n[None, :], row[:, None] * L * 4 * N + n[None, :]
        wi, wf = matrix(W, N, NP, False), matrix(W + N * N, N, NP, False)
        wg, wo = matrix(W + 2 * N * N, N, NP, False), matrix(W + 3 * N * N, N, NP, False)
        dx = tl.zeros((TB, NP), ACC)
        dc = tl.zeros((TB, NP), ACC)
        i, f, g, o, c, before, dh, dc_out = passed(
            grad_states, grad_final, grad_cell, gates, cells, c0, row, n, tl.maximum(longest - 1, 0), length,
            mask & (longest > 0), L, N,
        )  # fmt: skip
        for back in range(longest):
            t = longest - 1 - back
            i_next, f_next, g_next, o_next, c_next, before_next, dh_next, dc_next = passed(
                grad_states, grad_final, grad_cell, gates, cells, c0, row, n, tl.maximum(t - 1, 0), length, mask, L, N
            )
            di, df, dg, do, dc = closed(i, f, g, o, c, before, dx + dh, dc + dc_out, (t < length)[:, None])
            put_four(adjoints + wide + t * 4 * N, di, df, dg, do, mask, N)
            dx = product(di, wi, PRECISION, ACC) + product(df, wf, PRECISION, ACC)
            dx += product(dg, wg, PRECISION, ACC) + product(do, wo, PRECISION, ACC)
            i, f, g, o, c, before, dh, dc_out = (
                i_next, f_next, g_next, o_next, c_next, before_next, dh_next, dc_next,
            )  # fmt: skip
        if grad_final is not None:
            dx += tl.load(grad_final + once, mask=mask & (length == 0)[:, None], other=0.0)
        if grad_cell is not None:
            dc += tl.load(grad_cell + once, mask=mask & (length == 0)[:, None], other=0.0)
        tl.store(dx0 + once, dx, mask=mask)
        tl.store(dc0 + once, dc, mask=mask)
    else:
        for back in range(longest):
            t = longest - 1 - back
            for first in range(0, N, NP):
                m = first + n
                mask = here[:, None] & (m < N)[None, :]
                once = row[:, None] * N + m[None, :]
                i, f, g, o, c, before, dh, dc = passed(
                    grad_states, grad_final, grad_cell, gates, cells, c0, row, m, t, length, mask, L, N
                )
                if back > 0:
                    x = adjoints + (row * L + t + 1) * 4 * N
                    dh += streamed(x, here, W, m, N, 4 * N, TB, NP, CK, False, PRECISION, ACC)
                    dc += tl.load(dc0 + once, mask=mask, other=0.0)
                di, df, dg, do, dc = closed(i, f, g, o, c, before, dh, dc, (t < length)[:, None])
                put_four(adjoints + (row[:, None] * L + t) * 4 * N + m[None, :], di, df, dg, do, mask, N)
                tl.store(dc0 + once, dc, mask=mask)
            tl.debug_barrier()  # the next step reads what other threads wrote
        for first in range(0, N, NP):
            m = first + n
            mask = here[:, None] & (m < N)[None, :]
            once, ended = row[:, None] * N + m[None, :], mask & (length == 0)[:, None]
            there = here & (length > 0)  # where no row of the tile has a step, nothing was written
            dx = streamed(adjoints + row * L * 4 * N, there, W, m, N, 4 * N, TB, NP, CK, False, PRECISION, ACC)
            dc = tl.load(dc0 + once, mask=mask & (length > 0)[:, None], other=0.0)
            if grad_final is not None:
                dx += tl.load(grad_final + once, mask=ended, other=0.0)
            if grad_cell is not None:
                dc += tl.load(grad_cell + once, mask=ended, other=0.0)
            tl.store(dx0 + once, dx, mask=mask)
            tl.store(dc0 + once, dc, mask=mask)
    for first in range(0, N, NP):
        mask = here[:, None] & (first + n < N)[None, :]
        nothing = tl.zeros((TB, NP), ACC)
        for t in range(longest, L):  # past the length of all rows
            at = adjoints + (row[:, None] * L + t) * 4 * N + first + n[None, :]
            put_four(at, nothing, nothing, nothing, nothing, mask, N)


def launch(W: Tensor, rows: int) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid, and what the kernels are compiled for."""
    R, _, N = W.shape
    resident = LARGEST_RESIDENT[W.dtype]
    options = constants(W.dtype, N, resident) | {"num_warps": 8, "num_stages": 1}
    if not options["RESIDENT"]:
        options["num_stages"] = 3  # Triton fetches the tiles of W ahead
    if W.dtype == torch.float32 and R * triton.cdiv(rows, ROWS) > PROGRAMS:
        options["TB"] = 2 * ROWS
    return (triton.cdiv(rows, options["TB"]), R), options


def forward(
    W: Tensor, drive: Tensor, x0: Tensor | None, c0: Tensor | None, lengths: Tensor | None, wanted: bool
) -> tuple[Tensor, ...]:
    """states (R, B, L, N), final and cell (R, B, N), and if `wanted` gates (R, B, L, 4N) and cells (R, B, L, N)."""
    R, B, L, _ = drive.shape
    N = W.shape[-1]
    states, final, cell = drive.new_empty(R, B, L, N), drive.new_empty(R, B, N), drive.new_empty(R, B, N)
    gates = torch.empty_like(drive) if wanted else None
    grid, options = launch(W, B)
    cells = torch.empty_like(states) if wanted or not options["RESIDENT"] else None
    forward_kernel[grid](W, drive, x0, c0, lengths, states, final, cell, gates, cells, L, B, **options)
    kept = (gates, cells) if wanted else (absent(W), absent(W))
    return states, final, cell, *kept  # type: ignore[return-value]  # both are there if wanted


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    grad_cell: Tensor | None,
    W: Tensor,
    drive: Tensor,
    x0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    *kept: Any,
) -> tuple[Tensor | None, ...]:
    """The gradients of W, drive, x0 and c0."""
    states, final, cell, gates, cells, _ = kept
    _, B, L, _ = states.shape
    adjoints, dx0, dc0 = torch.empty_like(gates), torch.empty_like(final), torch.empty_like(cell)
    grid, options = launch(W, B)
    backward_kernel[grid](
        grad_states, grad_final, grad_cell, W, c0, lengths, gates, cells, adjoints, dx0, dc0, L, B, **options
    )
    found = weight_gradient(adjoints, states, x0), adjoints
    return *found, None if x0 is None else dx0, None if c0 is None else dc0
