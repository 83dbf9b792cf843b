# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Elman scan on NVIDIA GPUs: one kernel forward and one backward, for any length.

A program takes TB rows of one replica through all steps. The gradient of W is a batched product afterwards. States of
up to LARGEST_RESIDENT entries keep W and the state on chip, and the inputs of a step are loaded during the step before.
For larger states each step reads W from the caches in tiles, and reads the state from the array it was stored in; a
barrier separates that store from the load. `tiles` lists the constants of the kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.elman.gradients import weight_gradient
from sdssm.ops.elman.tiles import ROWS, kernel_constants, load_matrix, row_tile, streamed_product
from sdssm.ops.products import split_bmm

#: Entries of the largest state whose W stays on chip: 64 KiB of float32, a quarter of a multiprocessor's registers.
LARGEST_RESIDENT = 128


@triton.jit(do_not_specialize=["L", "B"])
def elman_forward_kernel(
    W, drive, x0, lengths, states, final, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute h_t = relu(W h_{t-1} + drive_t)."""
    row, row_mask, length = row_tile(lengths, L, B, TB)
    max_length = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = row_mask[:, None] & (n < N)[None, :]
        # Offsets into arrays (rows, N), and of step 0 into arrays (rows, L, N).
        offsets, step_offsets = row[:, None] * N + n[None, :], row[:, None] * L * N + n[None, :]
        w = load_matrix(W, N, NP, True)
        x = tl.zeros((TB, NP), ACC)
        if x0 is not None:
            x = tl.load(x0 + offsets, mask=mask, other=0.0)
        drive_t = tl.load(drive + step_offsets, mask=mask, other=0.0)
        for t in range(max_length):
            next_drive = tl.load(drive + step_offsets + tl.minimum(t + 1, L - 1) * N, mask=mask, other=0.0)
            z = drive_t + tl.dot(x, w, input_precision=PRECISION, out_dtype=ACC)
            z = tl.where(z <= 0.0, 0.0, z)  # propagates NaN
            in_length = (t < length)[:, None]
            x = tl.where(in_length, z, x)
            tl.store(states + step_offsets + t * N, tl.where(in_length, z, 0.0), mask=mask)
            drive_t = next_drive
        tl.store(final + offsets, x, mask=mask)
    else:
        for t in range(max_length):
            for start in range(0, N, NP):
                mask = row_mask[:, None] & (start + n < N)[None, :]
                offsets = row[:, None] * N + start + n[None, :]
                step_offsets = row[:, None] * L * N + start + n[None, :]
                z = tl.load(drive + step_offsets + t * N, mask=mask, other=0.0)
                if t > 0:
                    z += streamed_product(states + (row * L + t - 1) * N, row_mask, W, start + n, N, N, TB, NP, CK,
                                          True, PRECISION, ACC)  # fmt: skip
                elif x0 is not None:
                    z += streamed_product(x0 + row * N, row_mask, W, start + n, N, N, TB, NP, CK, True, PRECISION, ACC)
                z = tl.where((z <= 0.0) | (t >= length)[:, None], 0.0, z)
                tl.store(states + step_offsets + t * N, z, mask=mask)
                tl.store(final + offsets, z, mask=mask & (t == length - 1)[:, None])
            tl.debug_barrier()  # the next step loads what other threads stored
    for start in range(0, N, NP):
        mask = row_mask[:, None] & (start + n < N)[None, :]
        zeros = tl.zeros((TB, NP), ACC)
        for t in range(max_length, L):  # past the end of all rows
            tl.store(states + (row[:, None] * L + t) * N + start + n[None, :], zeros, mask=mask)
        if not RESIDENT:
            offsets = row[:, None] * N + start + n[None, :]
            x = zeros
            if x0 is not None:
                x = tl.load(x0 + offsets, mask=mask, other=0.0)
            tl.store(final + offsets, x, mask=mask & (length == 0)[:, None])


@triton.jit
def load_step(grad_states, grad_final, states, step_offsets, offsets, t, length, mask, L, N: tl.constexpr):
    """Load h_t and its gradient from the loss, with that of `final` at the last step of a row."""
    h = tl.load(states + step_offsets + t * N, mask=mask, other=0.0)
    grad = tl.zeros_like(h)
    if grad_states is not None:
        grad += tl.load(grad_states + step_offsets + t * N, mask=mask, other=0.0)
    if grad_final is not None:
        grad += tl.load(grad_final + offsets, mask=mask & (t == length - 1)[:, None], other=0.0)
    return grad, h


@triton.jit(do_not_specialize=["L", "B"])
def elman_backward_kernel(
    grad_states, grad_final, W, lengths, states, grad_drive, grad_x0, L, B,
    N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, CK: tl.constexpr, RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute grad_drive_t = grad_states_t + W^T grad_drive_{t+1} where h_t > 0, and 0 elsewhere.

    Past the end of a row h_t is 0, and so is the gradient.
    """
    row, row_mask, length = row_tile(lengths, L, B, TB)
    max_length = tl.max(length, axis=0)
    W += tl.program_id(1).to(tl.int64) * N * N
    n = tl.arange(0, NP)
    if RESIDENT:
        mask = row_mask[:, None] & (n < N)[None, :]
        offsets, step_offsets = row[:, None] * N + n[None, :], row[:, None] * L * N + n[None, :]
        w = load_matrix(W, N, NP, False)
        dh = tl.zeros((TB, NP), ACC)
        grad, h = load_step(
            grad_states, grad_final, states, step_offsets, offsets, tl.maximum(max_length - 1, 0), length, mask, L, N
        )
        for i in range(max_length):
            t = max_length - 1 - i
            next_grad, next_h = load_step(
                grad_states, grad_final, states, step_offsets, offsets, tl.maximum(t - 1, 0), length, mask, L, N
            )
            dz = tl.where(h > 0.0, grad + dh, 0.0)
            tl.store(grad_drive + step_offsets + t * N, dz, mask=mask)
            dh = tl.dot(dz, w, input_precision=PRECISION, out_dtype=ACC)
            grad, h = next_grad, next_h
        if grad_x0 is not None:
            if grad_final is not None:
                dh += tl.load(grad_final + offsets, mask=mask & (length == 0)[:, None], other=0.0)
            tl.store(grad_x0 + offsets, dh, mask=mask)
    else:
        for i in range(max_length):
            t = max_length - 1 - i
            for start in range(0, N, NP):
                mask = row_mask[:, None] & (start + n < N)[None, :]
                offsets = row[:, None] * N + start + n[None, :]
                step_offsets = row[:, None] * L * N + start + n[None, :]
                grad, h = load_step(grad_states, grad_final, states, step_offsets, offsets, t, length, mask, L, N)
                if i > 0:
                    grad += streamed_product(grad_drive + (row * L + t + 1) * N, row_mask, W, start + n, N, N, TB, NP,
                                             CK, False, PRECISION, ACC)  # fmt: skip
                tl.store(grad_drive + step_offsets + t * N, tl.where(h > 0.0, grad, 0.0), mask=mask)
            tl.debug_barrier()  # the next step loads what other threads stored
        if grad_x0 is not None:
            for start in range(0, N, NP):
                mask = row_mask[:, None] & (start + n < N)[None, :]
                offsets = row[:, None] * N + start + n[None, :]
                # A row of length 0 may have no stored gradient to load.
                has_steps = row_mask & (length > 0)
                dh = streamed_product(grad_drive + row * L * N, has_steps, W, start + n, N, N, TB, NP, CK, False,
                                      PRECISION, ACC)  # fmt: skip
                if grad_final is not None:
                    dh += tl.load(grad_final + offsets, mask=mask & (length == 0)[:, None], other=0.0)
                tl.store(grad_x0 + offsets, dh, mask=mask)
    for start in range(0, N, NP):
        mask = row_mask[:, None] & (start + n < N)[None, :]
        zeros = tl.zeros((TB, NP), ACC)
        for t in range(max_length, L):  # past the end of all rows
            tl.store(grad_drive + (row[:, None] * L + t) * N + start + n[None, :], zeros, mask=mask)


def launch_options(W: Tensor, rows: int) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return the grid and the keyword arguments of a launch.

    Triton's software pipeline loads the tiles of a streamed W ahead. With a resident W the kernel does so itself.
    """
    R, _, N = W.shape
    constants = kernel_constants(W.dtype, N, LARGEST_RESIDENT)
    options = {"num_warps": 4 if N <= 64 else 8, "num_stages": 1 if constants["RESIDENT"] else 3}
    return (triton.cdiv(rows, ROWS), R), constants | options


def forward(W: Tensor, drive: Tensor, x0: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return states (R, B, L, N) and final (R, B, N), with the arguments of the CPU implementation."""
    R, B, L, N = drive.shape
    states, final = torch.empty_like(drive), drive.new_empty(R, B, N)
    grid, options = launch_options(W, B)
    elman_forward_kernel[grid](W, drive, x0, lengths, states, final, L, B, **options)
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
    """Return the gradients of W, drive and x0."""
    _, B, L, _ = states.shape
    grad_drive = torch.empty_like(states)
    grad_x0 = None if x0 is None else torch.empty_like(x0)
    grid, options = launch_options(W, B)
    elman_backward_kernel[grid](grad_states, grad_final, W, lengths, states, grad_drive, grad_x0, L, B, **options)
    return weight_gradient(grad_drive, states, x0, split_bmm), grad_drive, grad_x0
