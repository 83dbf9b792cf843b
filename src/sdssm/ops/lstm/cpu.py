"""LSTM scan on the CPU: a loop over time with one batched product for all replicas.

For the gradient the forward pass keeps the gates after their activations, and the cells. The gradient of W is a single
product over all rows and steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.elman.gradients import incoming_gradients, start_gradient, weight_gradient
from sdssm.ops.elman.lengths import last_states, longest_length, past_end_mask

sigmoid_backward = torch.ops.aten.sigmoid_backward
tanh_backward = torch.ops.aten.tanh_backward


def empty_time_major(like: Tensor, R: int, B: int, L: int, size: int) -> Tensor:
    """Return an uninitialised tensor (R, B, L, size) whose steps are contiguous.

    About ten elementwise operations read each step.
    """
    return like.new_empty(L, R, B, size).permute(1, 2, 0, 3)


def split_gates(z: Tensor) -> tuple[Tensor, ...]:
    """Return the parts i, f, g and o of (..., 4N)."""
    return z.chunk(4, dim=-1)


def forward(
    W: Tensor, drive: Tensor, x0: Tensor | None, c0: Tensor | None, lengths: Tensor | None, needs_grad: bool
) -> tuple[Tensor, ...]:
    """Return states (R, B, L, N), final and cell (R, B, N), and what `backward` needs.

    That is gates (R, B, L, 4N) and cells (R, B, L, N); both are empty unless `needs_grad`.

    W (R, 4N, N), drive (R, B, L, 4N), x0 and c0 (R, B, N), lengths (R, B).
    """
    R, B, L, _ = drive.shape
    N = W.shape[-1]
    states, cells = drive.new_empty(R, B, L, N), empty_time_major(drive, R, B, L, N)
    gates = empty_time_major(drive, R, B, L if needs_grad else 1, 4 * N)  # without a gradient one step is reused
    x, c = x0, c0
    for t in range(longest_length(lengths, L)):
        z, h, cell = gates[:, :, t if needs_grad else 0], states[:, :, t], cells[:, :, t]
        if x is None:
            z.copy_(drive[:, :, t])
        else:
            torch.baddbmm(drive[:, :, t], x, W.mT, out=z)
        i, f, g, o = split_gates(z)
        z[..., : 2 * N].sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(i, g, out=cell)
        if c is not None:
            cell.addcmul_(f, c)
        torch.tanh(cell, out=h).mul_(o)
        x, c = h, cell
    if lengths is not None:
        past_end = past_end_mask(lengths, L)
        states.masked_fill_(past_end, 0)
        cells.masked_fill_(past_end, 0)
    saved = (gates, cells) if needs_grad else (empty_placeholder(W), empty_placeholder(W))
    return states, last_states(states, x0, lengths), last_states(cells, c0, lengths), *saved


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    grad_cell: Tensor | None,
    W: Tensor,
    drive: Tensor,
    x0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    final: Tensor,
    cell: Tensor,
    gates: Tensor,
    cells: Tensor,
    needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of W, drive, x0 and c0."""
    incoming = incoming_gradients(grad_states, grad_final, states, lengths)
    incoming_cell = None if grad_cell is None else incoming_gradients(None, grad_cell, cells, lengths)
    grad_drive = torch.zeros_like(gates)
    steps = longest_length(lengths, states.shape[2])
    dh, dc = incoming[:, :, steps - 1], torch.zeros_like(states[:, :, 0])
    for t in reversed(range(steps)):
        i, f, g, o = split_gates(gates[:, :, t])
        di, df, dg, do = split_gates(grad_drive[:, :, t])
        tanh_c = torch.tanh(cells[:, :, t])
        previous_c = c0 if t == 0 else cells[:, :, t - 1]
        sigmoid_backward.grad_input(dh * tanh_c, o, grad_input=do)
        dc += tanh_backward(dh * o, tanh_c)
        if incoming_cell is not None:
            dc += incoming_cell[:, :, t]
        sigmoid_backward.grad_input(dc * g, i, grad_input=di)
        tanh_backward.grad_input(dc * i, g, grad_input=dg)
        if previous_c is not None:  # a start cell of zero gives the forget gate no gradient
            sigmoid_backward.grad_input(dc * previous_c, f, grad_input=df)
        dc *= f
        if t:
            dh = torch.baddbmm(incoming[:, :, t - 1], grad_drive[:, :, t], W)
    grad_x0 = None if x0 is None else start_gradient(torch.bmm(grad_drive[:, :, 0], W), grad_final, lengths)
    grad_c0 = None if c0 is None else start_gradient(dc, grad_cell, lengths)
    return weight_gradient(grad_drive, states, x0, torch.bmm), grad_drive, grad_x0, grad_c0
