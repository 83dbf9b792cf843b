"""Elman scan on the CPU: a loop over time of torch's own products, all replicas in each, and the same backwards.

The gradient of W is one product over all rows and steps, where torch's record of every step would form one for each.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.products import shared


def longest(lengths: Tensor | None, length: int) -> int:
    """Steps after which no row goes on."""
    return length if lengths is None else int(lengths.max())


def past(lengths: Tensor, length: int) -> Tensor:
    """Which steps lie past the end of their row: (R, B) -> (R, B, L, 1)."""
    return (torch.arange(length, device=lengths.device) >= lengths[..., None])[..., None]


def last(states: Tensor, start: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The state at the end of each row: (R, B, L, N), zero past the ends, -> (R, B, N)."""
    if lengths is None:
        return states[:, :, -1].clone()
    at = (lengths - 1).clamp(min=0)[..., None, None].expand(-1, -1, 1, states.shape[-1])
    found = states.gather(2, at)[:, :, 0]
    return found if start is None else torch.where((lengths == 0)[..., None], start, found)


def arriving(grad: Tensor | None, grad_last: Tensor | None, states: Tensor, lengths: Tensor | None) -> Tensor:
    """What reaches each state from outside, (R, B, L, N): that of the last state where its row ends, 0 past it."""
    if lengths is None:
        found = torch.zeros_like(states) if grad is None else grad
        if grad_last is not None:
            found = found if grad is None else found.clone()
            found[:, :, -1] += grad_last
        return found
    beyond = past(lengths, states.shape[2])
    found = torch.zeros_like(states) if grad is None else grad.masked_fill(beyond, 0)
    if grad_last is not None:
        at = (lengths - 1).clamp(min=0)[..., None, None].expand(-1, -1, 1, states.shape[-1])
        found.scatter_add_(2, at, (grad_last * (lengths > 0)[..., None])[:, :, None])
    return found


def start_gradient(found: Tensor, grad_last: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The gradient of the start: what came through the steps, and the last state's for a row of length 0."""
    if lengths is None or grad_last is None:
        return found
    return torch.where((lengths == 0)[..., None], grad_last, found)


def weight_gradient(adjoints: Tensor, states: Tensor, x0: Tensor | None) -> Tensor:
    """sum over rows and steps of adjoint_t h_{t-1}^T: (R, B, L, M), (R, B, L, N) -> (R, M, N)."""
    before = states[:, :, :-1]
    before = functional.pad(before, (0, 0, 1, 0)) if x0 is None else torch.cat([x0[:, :, None], before], dim=2)
    multiply = shared if adjoints.is_cuda else torch.bmm
    return multiply(adjoints.flatten(1, 2).mT, before.flatten(1, 2))


def forward(W: Tensor, drive: Tensor, x0: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """states (R, B, L, N), final (R, B, N)."""
    states = torch.empty_like(drive)
    drives, at = drive.unbind(2), states.unbind(2)
    x = x0
    for t in range(longest(lengths, drive.shape[2])):
        if x is None:
            at[t].copy_(drives[t]).relu_()
        else:
            torch.baddbmm(drives[t], x, W.mT, out=at[t]).relu_()
        x = at[t]
    if lengths is not None:
        states.masked_fill_(past(lengths, drive.shape[2]), 0)
    return states, last(states, x0, lengths)


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
    outside = arriving(grad_states, grad_final, states, lengths).unbind(2)
    adjoints = torch.zeros_like(states)
    steps = longest(lengths, states.shape[2])
    into, at = adjoints.unbind(2), states.unbind(2)
    dh = outside[steps - 1]
    for t in reversed(range(steps)):
        # relu lets pass where the state is positive; states past an end are zero
        torch.ops.aten.threshold_backward.grad_input(dh, at[t], 0, grad_input=into[t])
        if t:
            dh = torch.baddbmm(outside[t - 1], into[t], W)
    dx0 = None if x0 is None else start_gradient(torch.bmm(into[0], W), grad_final, lengths)
    return weight_gradient(adjoints, states, x0), adjoints, dx0
