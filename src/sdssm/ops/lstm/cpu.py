"""LSTM scan on the CPU: a loop over time of torch's own products, all replicas in each, and the same backwards.

Kept for the gradient are the gates as they were used and the cells; the gradient of W is one product over all steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.autograd import absent
from sdssm.ops.elman.cpu import arriving, last, longest, past, start_gradient, weight_gradient

sigmoid_backward = torch.ops.aten.sigmoid_backward
tanh_backward = torch.ops.aten.tanh_backward


def by_time(like: Tensor, R: int, B: int, L: int, size: int) -> Tensor:
    """Memory (R, B, L, size) in which what belongs to one step lies together, as ten small functions of it want."""
    return like.new_empty(L, R, B, size).permute(1, 2, 0, 3)


def gates_of(z: Tensor) -> tuple[Tensor, ...]:
    """i, f, g, o of (..., 4N)."""
    return z.chunk(4, dim=-1)


def forward(
    W: Tensor, drive: Tensor, x0: Tensor | None, c0: Tensor | None, lengths: Tensor | None, wanted: bool
) -> tuple[Tensor, ...]:
    """states (R, B, L, N), final and cell (R, B, N), and if `wanted` gates (R, B, L, 4N) and cells (R, B, L, N)."""
    R, B, L, _ = drive.shape
    N = W.shape[-1]
    states, cells = drive.new_empty(R, B, L, N), by_time(drive, R, B, L, N)
    gates = by_time(drive, R, B, L if wanted else 1, 4 * N)  # or the same memory at every step
    x, c = x0, c0
    for t in range(longest(lengths, L)):
        z, h, cell = gates[:, :, t if wanted else 0], states[:, :, t], cells[:, :, t]
        if x is None:
            z.copy_(drive[:, :, t])
        else:
            torch.baddbmm(drive[:, :, t], x, W.mT, out=z)
        i, f, g, o = gates_of(z)
        z[..., : 2 * N].sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(i, g, out=cell)
        if c is not None:
            cell.addcmul_(f, c)
        torch.tanh(cell, out=h).mul_(o)
        x, c = h, cell
    if lengths is not None:
        beyond = past(lengths, L)
        states.masked_fill_(beyond, 0)
        cells.masked_fill_(beyond, 0)
    kept = (gates, cells) if wanted else (absent(W), absent(W))
    return states, last(states, x0, lengths), last(cells, c0, lengths), *kept


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
    wanted: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of W, drive, x0 and c0."""
    outside = arriving(grad_states, grad_final, states, lengths)
    on_cells = None if grad_cell is None else arriving(None, grad_cell, cells, lengths)
    adjoints = torch.zeros_like(gates)
    steps = longest(lengths, states.shape[2])
    dh, dc = outside[:, :, steps - 1], torch.zeros_like(states[:, :, 0])
    for t in reversed(range(steps)):
        i, f, g, o = gates_of(gates[:, :, t])
        di, df, dg, do = gates_of(adjoints[:, :, t])
        shown = torch.tanh(cells[:, :, t])
        before = c0 if t == 0 else cells[:, :, t - 1]
        sigmoid_backward.grad_input(dh * shown, o, grad_input=do)
        dc += tanh_backward(dh * o, shown)
        if on_cells is not None:
            dc += on_cells[:, :, t]
        sigmoid_backward.grad_input(dc * g, i, grad_input=di)
        tanh_backward.grad_input(dc * i, g, grad_input=dg)
        if before is not None:  # else f multiplied zeros
            sigmoid_backward.grad_input(dc * before, f, grad_input=df)
        dc *= f
        if t:
            dh = torch.baddbmm(outside[:, :, t - 1], adjoints[:, :, t], W)
    dx0 = None if x0 is None else start_gradient(torch.bmm(adjoints[:, :, 0], W), grad_final, lengths)
    dc0 = None if c0 is None else start_gradient(dc, grad_cell, lengths)
    return weight_gradient(adjoints, states, x0), adjoints, dx0, dc0
