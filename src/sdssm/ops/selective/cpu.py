"""Selective scan on the CPU: compiled by numba if it is installed, in torch otherwise.

In torch, blocks of rows that fit the cache are processed step by step. If a gradient is needed, the state is kept every
STRIDE steps; `backward` recomputes the states between, STRIDE at a time. Past the end of a row delta is set to 0, which
leaves the state unchanged. The compiled kernels keep nothing, see `numba_kernels`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops import compiled
from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.transitions import flush_threshold

#: Steps between two checkpoints of the state.
STRIDE = 8
#: Entries of the states of a block of rows.
BLOCK = 1 << 16


def checkpoint_count(L: int) -> int:
    """Return how many checkpoints a row of L steps has: the states before steps 0, STRIDE, 2 STRIDE ..."""
    return -(-L // STRIDE)


def row_blocks(x: Tensor, N: int, lengths: Tensor | None) -> Iterator[tuple[tuple[int, slice], int]]:
    """Yield blocks of rows, each as (replica, slice of rows), with the length of the longest row in each."""
    R, B, L, D = x.shape
    rows = max(1, BLOCK // (D * N))
    for replica in range(R):
        for first in range(0, B, rows):
            block = replica, slice(first, min(first + rows, B))
            yield block, L if lengths is None else int(lengths[block].max())


def zero_past_end(tensors: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
    """Return tensors (R, B, L, *) with zeros past the ends of rows."""
    if lengths is None:
        return tensors
    in_length = torch.arange(tensors[0].shape[2]) < lengths[..., None]
    return tuple(torch.where(in_length[..., None], tensor, 0) for tensor in tensors)


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
    unless `needs_grad`, or if the compiled kernels ran.
    """
    if compiled.is_available():
        return *_compiled_forward(x, delta, A, B, C, h0, lengths), empty_placeholder(x)
    L, (D, N) = x.shape[2], A.shape[1:]
    x, delta, B, C = zero_past_end((x, delta, B, C), lengths)
    drive = delta * x
    y = torch.zeros_like(x)
    final = x.new_empty(*x.shape[:2], D, N)
    checkpoints = x.new_zeros(*x.shape[:2], checkpoint_count(L), D, N) if needs_grad else empty_placeholder(x)
    for block, steps in row_blocks(x, N, lengths):
        h = torch.zeros_like(final[block]) if h0 is None else h0[block].clone()
        decay = torch.empty_like(h)
        for t in range(steps):
            if needs_grad and t % STRIDE == 0:
                checkpoints[block][:, t // STRIDE] = h
            torch.mul(delta[block][:, t, :, None], A[block[0]], out=decay).exp_()
            h.mul_(decay).addcmul_(drive[block][:, t, :, None], B[block][:, t, None])
            y[block][:, t] = torch.bmm(h, C[block][:, t, :, None])[..., 0]
        final[block] = h
    return y, final, checkpoints


def backward(
    grad_y: Tensor | None,
    grad_final: Tensor | None,
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    final: Tensor,
    checkpoints: Tensor,
    needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, delta, A, B, C and h0.

    With g_t the gradient of h_t and a_t = exp(delta_t A):

        g_t = dy_t C_t + a_{t+1} g_{t+1}
        d(a_t)[d, n] = g_t h_{t-1}
        d(delta_t x_t)[d] = sum_n g_t B_t
        dB_t = sum_d g_t delta_t x_t
        dC_t = sum_d dy_t h_t
    """
    if checkpoints.dim() == 2:  # nothing was saved: the compiled kernels ran
        return _compiled_backward(grad_y, grad_final, x, delta, A, B, C, h0, lengths)
    N = A.shape[-1]
    x, delta, B, C = zero_past_end((x, delta, B, C), lengths)
    if grad_y is not None:
        (grad_y,) = zero_past_end((grad_y,), lengths)
    drive = delta * x
    # In the loop dx holds d(delta x), and ddelta the part of d(delta) through exp(delta A).
    dx, ddelta, dB, dC = (torch.zeros_like(tensor) for tensor in (x, x, B, B))
    dA = torch.zeros_like(A)
    dh0 = None if h0 is None else torch.empty_like(h0)
    for block, steps in row_blocks(x, N, lengths):
        rates = A[block[0]]
        g = torch.zeros_like(final[block]) if grad_final is None else grad_final[block].clone()
        dA_block = torch.zeros_like(g)
        states, decays = g.new_empty(STRIDE + 1, *g.shape), g.new_empty(STRIDE, *g.shape)
        product = torch.empty_like(g)
        for start in range((steps - 1) // STRIDE * STRIDE, -1, -STRIDE):
            stop = min(start + STRIDE, steps)
            times = delta[block][:, start:stop].movedim(1, 0)[..., None]
            decay = torch.mul(times, rates, out=decays[: stop - start]).exp_()
            states[0] = checkpoints[block][:, start // STRIDE]
            for i, t in enumerate(range(start, stop)):
                torch.mul(decay[i], states[i], out=states[i + 1])
                states[i + 1].addcmul_(drive[block][:, t, :, None], B[block][:, t, None])
            for t in range(stop - 1, start - 1, -1):
                i = t - start
                if grad_y is not None:
                    incoming = grad_y[block][:, t]
                    g.addcmul_(incoming[..., None], C[block][:, t, None])
                    dC[block][:, t] = torch.bmm(incoming[:, None], states[i + 1])[:, 0]
                dx[block][:, t] = torch.bmm(g, B[block][:, t, :, None])[..., 0]
                dB[block][:, t] = torch.bmm(drive[block][:, t, None], g)[:, 0]
                g = functional.hardshrink(g.mul_(decay[i]), flush_threshold(g.dtype))
                torch.mul(g, states[i], out=product)
                dA_block.addcmul_(times[i], product)
                ddelta[block][:, t] = product.mul_(rates).sum(-1)
        dA[block[0]] += dA_block.sum(0)
        if dh0 is not None:
            dh0[block] = g
    (ddelta,) = zero_past_end((ddelta.addcmul_(dx, x),), lengths)
    return dx.mul_(delta), ddelta, dA, dB, dC, dh0


def _compiled_forward(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return y and final, computed by numba."""
    R, rows, L, D = x.shape
    y, final = torch.empty_like(x), x.new_empty(R, rows, D, A.shape[-1])
    compiled.run_over_rows(
        compiled.import_kernels("selective").forward, R * rows, 4 * L * final.numel(),
        *_input_arrays(x, delta, A, B, C, h0, lengths), rows, flush_threshold(x.dtype),
        y.flatten(0, 1).numpy(), final.flatten(0, 1).numpy(),
    )  # fmt: skip
    return y, final


def _compiled_backward(
    grad_y: Tensor | None, grad_final: Tensor | None,
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients, computed by numba."""
    R, rows, L, D = x.shape
    dx, ddelta, dB, dC = (torch.empty_like(tensor) for tensor in (x, x, B, B))
    dA = x.new_empty(R, rows, D, A.shape[-1])
    dh0 = None if h0 is None else torch.empty_like(h0)
    empty = x.new_empty(0, 0, 0)
    incoming = ((empty if grad is None else grad.flatten(0, 1)).numpy() for grad in (grad_y, grad_final))
    grads = ((empty if grad is None else grad.flatten(0, 1)).numpy() for grad in (dx, ddelta, dA, dB, dC, dh0))
    compiled.run_over_rows(
        compiled.import_kernels("selective").backward, R * rows, 16 * L * dA.numel(),
        *incoming, *_input_arrays(x, delta, A, B, C, h0, lengths), rows, flush_threshold(x.dtype), *grads,
    )  # fmt: skip
    return dx, ddelta, dA.sum(1), dB, dC, dh0


def _input_arrays(*tensors: Tensor | None) -> list[np.ndarray[Any, Any]]:
    """Return x, delta, A, B, C, h0 and lengths as the compiled kernels read them.

    R and B are one dimension; h0 may be empty.
    """
    x, delta, A, B, C, h0, lengths = tensors
    assert x is not None and A is not None
    rows, L = x.shape[0] * x.shape[1], x.shape[2]
    flat = [tensor if tensor is None or tensor is A else tensor.flatten(0, 1) for tensor in (x, delta, A, B, C, h0)]
    return [
        *(compiled.as_array(tensor, x, (0, 0, 0)) for tensor in flat),
        compiled.lengths_array(None if lengths is None else lengths.flatten(), rows, L),
    ]
