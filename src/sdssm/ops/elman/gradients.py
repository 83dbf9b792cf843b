"""Gradients that the Elman and LSTM scans form in the same way, on every backend."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops.elman.lengths import past_end_mask


def incoming_gradients(
    grad_states: Tensor | None, grad_final: Tensor | None, states: Tensor, lengths: Tensor | None
) -> Tensor:
    """Return the gradient that each returned state receives from the loss: (R, B, L, N).

    The gradient of the final state is added at the last step of its row. Steps past the end of a row get zero.
    """
    if lengths is None:
        grads = torch.zeros_like(states) if grad_states is None else grad_states
        if grad_final is not None:
            grads = grads if grad_states is None else grads.clone()
            grads[:, :, -1] += grad_final
        return grads
    past_end = past_end_mask(lengths, states.shape[2])
    grads = torch.zeros_like(states) if grad_states is None else grad_states.masked_fill(past_end, 0)
    if grad_final is not None:
        last_step = (lengths - 1).clamp(min=0)[..., None, None].expand(-1, -1, 1, states.shape[-1])
        grads.scatter_add_(2, last_step, (grad_final * (lengths > 0)[..., None])[:, :, None])
    return grads


def start_gradient(grad_start: Tensor, grad_final: Tensor | None, lengths: Tensor | None) -> Tensor:
    """Return the gradient of the start state; for a row of length 0 that of the final state."""
    if lengths is None or grad_final is None:
        return grad_start
    return torch.where((lengths == 0)[..., None], grad_final, grad_start)


def weight_gradient(
    adjoints: Tensor, states: Tensor, x0: Tensor | None, multiply: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return the sum over rows and steps of adjoint_t h_{t-1}^T: (R, B, L, M), (R, B, L, N) -> (R, M, N).

    `multiply` is the batched matrix product of the backend: the sum over B L is long, and a GPU splits it up.
    """
    previous = states[:, :, :-1]
    previous = functional.pad(previous, (0, 0, 1, 0)) if x0 is None else torch.cat([x0[:, :, None], previous], dim=2)
    return multiply(adjoints.flatten(1, 2).mT, previous.flatten(1, 2))
