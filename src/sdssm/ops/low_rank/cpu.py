"""The taps of diagonal plus low-rank systems on the CPU, compiled by numba; there is no implementation without it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdssm.ops.compiled import import_kernels, run_over_rows

#: Multiplications for a tap and a mode.
FORWARD_WORK, BACKWARD_WORK = 10, 30


def forward(
    log_dt: Tensor, log_decay: Tensor, frequency: Tensor, P: Tensor, B: Tensor, C: Tensor, length: int
) -> tuple[Tensor]:
    """Return taps (R, D, L)."""
    R, D, M = frequency.shape
    taps = frequency.new_empty(R, D, length)
    parameters = _arrays(log_dt, log_decay, frequency, P, B, C)
    run_over_rows(
        import_kernels("low_rank").forward,
        R * D,
        R * D * M * length * FORWARD_WORK,
        *parameters,
        taps.view(R * D, length).numpy(),
    )
    return (taps,)


def backward(
    grad: Tensor,
    log_dt: Tensor,
    log_decay: Tensor,
    frequency: Tensor,
    P: Tensor,
    B: Tensor,
    C: Tensor,
    length: int,
) -> tuple[Tensor, ...]:
    """Return the gradients of all parameters."""
    R, D, M = frequency.shape
    parameters = (log_dt, log_decay, frequency, P, B, C)
    if not length:
        return tuple(torch.zeros_like(parameter) for parameter in parameters)
    grads = tuple(torch.empty_like(parameter) for parameter in parameters)
    run_over_rows(
        import_kernels("low_rank").backward,
        R * D,
        R * D * M * length * BACKWARD_WORK,
        grad.contiguous().view(R * D, length).numpy(),
        *_arrays(*parameters),
        *_arrays(*grads),
    )
    return grads


def _arrays(log_dt: Tensor, log_decay: Tensor, frequency: Tensor, P: Tensor, B: Tensor, C: Tensor) -> tuple[Any, ...]:
    """Return parameters, or their gradients, as arrays on their memory: (R D,), (R D, M), (R D, M) and pairs."""
    flat = (log_dt.view(-1), log_decay.flatten(0, 1), frequency.flatten(0, 1), P, B, C)
    return tuple(tensor.detach().numpy() for tensor in flat)
