"""Elman scan on the CPU: a loop over time with one batched product for all replicas.

The gradient of W is a single product over all rows and steps. Autograd through the loop would form one per step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.elman.gradients import incoming_gradients, start_gradient, weight_gradient
from sdssm.ops.elman.lengths import last_states, longest_length, past_end_mask


def forward(W: Tensor, drive: Tensor, x0: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return states (R, B, L, N) and final (R, B, N).

    W (R, N, N), drive (R, B, L, N), x0 (R, B, N), lengths (R, B).
    """
    states = torch.empty_like(drive)
    drives, outputs = drive.unbind(2), states.unbind(2)
    x = x0
    for t in range(longest_length(lengths, drive.shape[2])):
        if x is None:
            outputs[t].copy_(drives[t]).relu_()
        else:
            torch.baddbmm(drives[t], x, W.mT, out=outputs[t]).relu_()
        x = outputs[t]
    if lengths is not None:
        states.masked_fill_(past_end_mask(lengths, drive.shape[2]), 0)
    return states, last_states(states, x0, lengths)


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
    incoming = incoming_gradients(grad_states, grad_final, states, lengths).unbind(2)
    grad_drive = torch.zeros_like(states)
    steps = longest_length(lengths, states.shape[2])
    grad_drives, state = grad_drive.unbind(2), states.unbind(2)
    dh = incoming[steps - 1]
    for t in reversed(range(steps)):
        # The derivative of relu is 1 where the state is positive. States past the end of a row are zero.
        torch.ops.aten.threshold_backward.grad_input(dh, state[t], 0, grad_input=grad_drives[t])
        if t:
            dh = torch.baddbmm(incoming[t - 1], grad_drives[t], W)
    grad_x0 = None if x0 is None else start_gradient(torch.bmm(grad_drives[0], W), grad_final, lengths)
    return weight_gradient(grad_drive, states, x0, torch.bmm), grad_drive, grad_x0
