# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""LSTM scan on NVIDIA GPUs: one kernel forward and one backward, built like those of the Elman scan.

States of up to LARGEST_RESIDENT entries keep the four matrices of the gates on chip. For the gradient the forward pass
stores the activated gates (R, B, L, 4N) and the cells. For larger states each step exchanges its values through memory:
h_{t-1} is read from `states` and c_{t-1} from `cells`; backward reads the gradient of the gates from `grad_drive` and
that of the cell from `grad_c0`. `sdssm.ops.elman.tiles` lists the constants of the kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.elman.gradients import weight_gradient
from sdssm.ops.elman.tiles import ROWS, kernel_constants, load_matrix, row_tile, streamed_product
from sdssm.ops.lstm.gates import add_streamed_products, dot, load_gates, step_backward, step_forward, store_gates
from sdssm.ops.products import split_bmm

#: Entries of the largest state whose four matrices stay on chip: 64 KiB of them in float32.
LARGEST_RESIDENT = {torch.float32: 64, torch.float64: 32}
#: Programs that run at the same time, one per multiprocessor because the matrices fill it. If ROWS rows per program
#: needed more programs, each takes twice the rows.
PROGRAMS = 128


@triton.jit(do_not_specialize=["L", "B"])
def lstm_forward_kernel(
    W, drive, x0, c0, lengths, states, final, cell, gates, cells, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute c_t = f c_{t-1} + i g, h_t = o tanh(c_t); i, f, g, o from W h_{t-1} + drive_t.

    `gates` is None if no gradient is needed; then `cells` may be None if RESIDENT.
    """
    row, row_mask, length = row_tile(lengths, L, B, TB)
    max_length = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * 4 * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = row_mask[:, None] & (n < N)[None, :]
        # Offsets into arrays (rows, N), and of step 0 into arrays (rows, L, N) and (rows, L, 4N).
        offsets, step_offsets = row[:, None] * N + n[None, :], row[:, None] * L * N + n[None, :]
        gate_offsets = row[:, None] * L * 4 * N + n[None, :]
        wi, wf = load_matrix(W, N, NP, True), load_matrix(W + N * N, N, NP, True)
        wg, wo = load_matrix(W + 2 * N * N, N, NP, True), load_matrix(W + 3 * N * N, N, NP, True)
        x = tl.zeros((TB, NP), ACC)
        c = tl.zeros((TB, NP), ACC)
        if x0 is not None:
            x = tl.load(x0 + offsets, mask=mask, other=0.0)
        if c0 is not None:
            c = tl.load(c0 + offsets, mask=mask, other=0.0)
        i, f, g, o = load_gates(drive + gate_offsets, mask, N)
        for t in range(max_length):
            next_step = tl.minimum(t + 1, L - 1)
            next_i, next_f, next_g, next_o = load_gates(drive + gate_offsets + next_step * 4 * N, mask, N)
            i += dot(x, wi, PRECISION, ACC)
            f += dot(x, wf, PRECISION, ACC)
            g += dot(x, wg, PRECISION, ACC)
            o += dot(x, wo, PRECISION, ACC)
            i, f, g, o, next_c, h = step_forward(i, f, g, o, c)
            in_length = (t < length)[:, None]
            x, c = tl.where(in_length, h, x), tl.where(in_length, next_c, c)
            tl.store(states + step_offsets + t * N, tl.where(in_length, h, 0.0), mask=mask)
            if gates is not None:
                store_gates(gates + gate_offsets + t * 4 * N, i, f, g, o, mask, N)
                tl.store(cells + step_offsets + t * N, c, mask=mask)
            i, f, g, o = next_i, next_f, next_g, next_o
        tl.store(final + offsets, x, mask=mask)
        tl.store(cell + offsets, c, mask=mask)
    else:
        for t in range(max_length):
            for start in range(0, N, NP):
                m = start + n
                mask = row_mask[:, None] & (m < N)[None, :]
                offsets, step_offsets = row[:, None] * N + m[None, :], row[:, None] * L * N + m[None, :]
                gate_offsets = (row[:, None] * L + t) * 4 * N + m[None, :]
                i, f, g, o = load_gates(drive + gate_offsets, mask, N)
                c = tl.zeros((TB, NP), ACC)
                if t > 0:
                    x = states + (row * L + t - 1) * N
                    i, f, g, o = add_streamed_products(i, f, g, o, x, row_mask, W, m, N, CK, PRECISION, ACC)
                    c = tl.load(cells + step_offsets + (t - 1) * N, mask=mask, other=0.0)
                else:
                    if x0 is not None:
                        i, f, g, o = add_streamed_products(i, f, g, o, x0 + row * N, row_mask, W, m, N, CK, PRECISION,
                                                           ACC)  # fmt: skip
                    if c0 is not None:
                        c = tl.load(c0 + offsets, mask=mask, other=0.0)
                i, f, g, o, c, h = step_forward(i, f, g, o, c)
                tl.store(states + step_offsets + t * N, tl.where((t < length)[:, None], h, 0.0), mask=mask)
                tl.store(cells + step_offsets + t * N, c, mask=mask)
                if gates is not None:
                    store_gates(gates + gate_offsets, i, f, g, o, mask, N)
                tl.store(final + offsets, h, mask=mask & (t == length - 1)[:, None])
                tl.store(cell + offsets, c, mask=mask & (t == length - 1)[:, None])
            tl.debug_barrier()  # the next step loads what other threads stored
    for start in range(0, N, NP):
        mask = row_mask[:, None] & (start + n < N)[None, :]
        zeros = tl.zeros((TB, NP), ACC)
        for t in range(max_length, L):  # past the end of all rows
            tl.store(states + (row[:, None] * L + t) * N + start + n[None, :], zeros, mask=mask)
        if not RESIDENT:
            offsets = row[:, None] * N + start + n[None, :]
            x = zeros
            c = zeros
            if x0 is not None:
                x = tl.load(x0 + offsets, mask=mask, other=0.0)
            if c0 is not None:
                c = tl.load(c0 + offsets, mask=mask, other=0.0)
            tl.store(final + offsets, x, mask=mask & (length == 0)[:, None])
            tl.store(cell + offsets, c, mask=mask & (length == 0)[:, None])


@triton.jit
def load_step(grad_states, grad_final, grad_cell, gates, cells, c0, row, m, t, length, mask, L, N: tl.constexpr):
    """Load the inputs of a backward step.

    These are the activated gates, c_t, c_{t-1}, and the gradients of h_t and c_t from the loss.
    """
    offsets, step_offsets = row[:, None] * N + m[None, :], (row[:, None] * L + t) * N + m[None, :]
    i, f, g, o = load_gates(gates + (row[:, None] * L + t) * 4 * N + m[None, :], mask, N)
    c = tl.load(cells + step_offsets, mask=mask, other=0.0)
    previous_c = tl.load(cells + step_offsets - N, mask=mask & (t > 0), other=0.0)
    if c0 is not None:
        previous_c += tl.load(c0 + offsets, mask=mask & (t == 0), other=0.0)
    last_step = mask & (t == length - 1)[:, None]
    dh = tl.zeros_like(c)
    dc = tl.zeros_like(c)
    if grad_states is not None:
        dh += tl.load(grad_states + step_offsets, mask=mask, other=0.0)
    if grad_final is not None:
        dh += tl.load(grad_final + offsets, mask=last_step, other=0.0)
    if grad_cell is not None:
        dc += tl.load(grad_cell + offsets, mask=last_step, other=0.0)
    return i, f, g, o, c, previous_c, dh, dc


@triton.jit(do_not_specialize=["L", "B"])
def lstm_backward_kernel(
    grad_states, grad_final, grad_cell, W, c0, lengths, gates, cells, grad_drive, grad_x0, grad_c0, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of drive_t, from the last step to the first, then those of x0 and c0."""
    row, row_mask, length = row_tile(lengths, L, B, TB)
    max_length = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * 4 * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = row_mask[:, None] & (n < N)[None, :]
        offsets, gate_offsets = row[:, None] * N + n[None, :], row[:, None] * L * 4 * N + n[None, :]
        wi, wf = load_matrix(W, N, NP, False), load_matrix(W + N * N, N, NP, False)
        wg, wo = load_matrix(W + 2 * N * N, N, NP, False), load_matrix(W + 3 * N * N, N, NP, False)
        dx = tl.zeros((TB, NP), ACC)
        dc = tl.zeros((TB, NP), ACC)
        i, f, g, o, c, previous_c, dh, dc_out = load_step(
            grad_states, grad_final, grad_cell, gates, cells, c0, row, n, tl.maximum(max_length - 1, 0), length,
            mask & (max_length > 0), L, N,
        )  # fmt: skip
        for i_back in range(max_length):
            t = max_length - 1 - i_back
            next_i, next_f, next_g, next_o, next_c, next_previous_c, next_dh, next_dc_out = load_step(
                grad_states, grad_final, grad_cell, gates, cells, c0, row, n, tl.maximum(t - 1, 0), length, mask, L, N
            )
            di, df, dg, do, dc = step_backward(i, f, g, o, c, previous_c, dx + dh, dc + dc_out, (t < length)[:, None])
            store_gates(grad_drive + gate_offsets + t * 4 * N, di, df, dg, do, mask, N)
            dx = dot(di, wi, PRECISION, ACC) + dot(df, wf, PRECISION, ACC)
            dx += dot(dg, wg, PRECISION, ACC) + dot(do, wo, PRECISION, ACC)
            i, f, g, o, c, previous_c, dh, dc_out = (
                next_i, next_f, next_g, next_o, next_c, next_previous_c, next_dh, next_dc_out,
            )  # fmt: skip
        if grad_final is not None:
            dx += tl.load(grad_final + offsets, mask=mask & (length == 0)[:, None], other=0.0)
        if grad_cell is not None:
            dc += tl.load(grad_cell + offsets, mask=mask & (length == 0)[:, None], other=0.0)
        tl.store(grad_x0 + offsets, dx, mask=mask)
        tl.store(grad_c0 + offsets, dc, mask=mask)
    else:
        for i_back in range(max_length):
            t = max_length - 1 - i_back
            for start in range(0, N, NP):
                m = start + n
                mask = row_mask[:, None] & (m < N)[None, :]
                offsets = row[:, None] * N + m[None, :]
                i, f, g, o, c, previous_c, dh, dc = load_step(
                    grad_states, grad_final, grad_cell, gates, cells, c0, row, m, t, length, mask, L, N
                )
                if i_back > 0:
                    x = grad_drive + (row * L + t + 1) * 4 * N
                    dh += streamed_product(x, row_mask, W, m, N, 4 * N, TB, NP, CK, False, PRECISION, ACC)
                    dc += tl.load(grad_c0 + offsets, mask=mask, other=0.0)
                di, df, dg, do, dc = step_backward(i, f, g, o, c, previous_c, dh, dc, (t < length)[:, None])
                store_gates(grad_drive + (row[:, None] * L + t) * 4 * N + m[None, :], di, df, dg, do, mask, N)
                tl.store(grad_c0 + offsets, dc, mask=mask)
            tl.debug_barrier()  # the next step loads what other threads stored
        for start in range(0, N, NP):
            m = start + n
            mask = row_mask[:, None] & (m < N)[None, :]
            offsets, empty_rows = row[:, None] * N + m[None, :], mask & (length == 0)[:, None]
            has_steps = row_mask & (length > 0)  # a row of length 0 may have no stored gradient to load
            dx = streamed_product(grad_drive + row * L * 4 * N, has_steps, W, m, N, 4 * N, TB, NP, CK, False,
                                  PRECISION, ACC)  # fmt: skip
            dc = tl.load(grad_c0 + offsets, mask=mask & (length > 0)[:, None], other=0.0)
            if grad_final is not None:
                dx += tl.load(grad_final + offsets, mask=empty_rows, other=0.0)
            if grad_cell is not None:
                dc += tl.load(grad_cell + offsets, mask=empty_rows, other=0.0)
            tl.store(grad_x0 + offsets, dx, mask=mask)
            tl.store(grad_c0 + offsets, dc, mask=mask)
    for start in range(0, N, NP):
        mask = row_mask[:, None] & (start + n < N)[None, :]
        zeros = tl.zeros((TB, NP), ACC)
        for t in range(max_length, L):  # past the end of all rows
            pointers = grad_drive + (row[:, None] * L + t) * 4 * N + start + n[None, :]
            store_gates(pointers, zeros, zeros, zeros, zeros, mask, N)


def launch_options(W: Tensor, rows: int) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid and the keyword arguments of a launch."""
    R, _, N = W.shape
    options = kernel_constants(W.dtype, N, LARGEST_RESIDENT[W.dtype]) | {"num_warps": 8, "num_stages": 1}
    if not options["RESIDENT"]:
        options["num_stages"] = 3  # Triton's software pipeline loads the tiles of W ahead
    if W.dtype == torch.float32 and R * triton.cdiv(rows, ROWS) > PROGRAMS:
        options["TB"] = 2 * ROWS
    return (triton.cdiv(rows, options["TB"]), R), options


def forward(
    W: Tensor, drive: Tensor, x0: Tensor | None, c0: Tensor | None, lengths: Tensor | None, needs_grad: bool
) -> tuple[Tensor, ...]:
    """Return states (R, B, L, N), final and cell (R, B, N), and the gates and cells for `backward`.

    Shapes and `needs_grad` are those of the CPU implementation.
    """
    R, B, L, _ = drive.shape
    N = W.shape[-1]
    states, final, cell = drive.new_empty(R, B, L, N), drive.new_empty(R, B, N), drive.new_empty(R, B, N)
    gates = torch.empty_like(drive) if needs_grad else None
    grid, options = launch_options(W, B)
    cells = torch.empty_like(states) if needs_grad or not options["RESIDENT"] else None
    lstm_forward_kernel[grid](W, drive, x0, c0, lengths, states, final, cell, gates, cells, L, B, **options)
    saved = (gates, cells) if needs_grad else (empty_placeholder(W), empty_placeholder(W))
    return states, final, cell, *saved  # type: ignore[return-value]  # no None if needs_grad


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    grad_cell: Tensor | None,
    W: Tensor,
    drive: Tensor,
    x0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    *saved: Any,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of W, drive, x0 and c0."""
    states, final, cell, gates, cells, _ = saved
    _, B, L, _ = states.shape
    grad_drive, grad_x0, grad_c0 = torch.empty_like(gates), torch.empty_like(final), torch.empty_like(cell)
    grid, options = launch_options(W, B)
    lstm_backward_kernel[grid](
        grad_states, grad_final, grad_cell, W, c0, lengths, gates, cells, grad_drive, grad_x0, grad_c0, L, B, **options
    )
    grad_W = weight_gradient(grad_drive, states, x0, split_bmm)
    return grad_W, grad_drive, None if x0 is None else grad_x0, None if c0 is None else grad_c0
