"""The taps of diagonal systems on the CPU, compiled by numba; there is no implementation without it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdssm.ops.compiled import as_array, import_kernels, run_over_rows

#: Multiplications for a tap and a mode.
FORWARD_WORK, BACKWARD_WORK = 4, 8


def forward(
    log_dt: Tensor, log_decay: Tensor, frequency: Tensor, C: Tensor, B: Tensor | None, length: int, discretisation: str
) -> tuple[Tensor, Tensor]:
    """Return taps (R, D, L), and the discrete systems for the gradient, (R, D, 4, M) in float64."""
    R, D, M = frequency.shape
    taps = frequency.new_empty(R, D, length)
    discrete = frequency.new_empty((R, D, 4, M), dtype=torch.float64)
    run_over_rows(
        import_kernels("modes").forward,
        R * D,
        R * D * M * length * FORWARD_WORK,
        *_arrays(log_dt, log_decay, frequency, C, B),
        discretisation == "zero-order-hold",
        discrete.view(R * D, 4, M).numpy(),
        taps.view(R * D, length).numpy(),
    )
    return taps, discrete


def backward(
    grad: Tensor,
    log_dt: Tensor,
    log_decay: Tensor,
    frequency: Tensor,
    C: Tensor,
    B: Tensor | None,
    discrete: Tensor,
    length: int,
    discretisation: str,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of all parameters."""
    R, D, M = frequency.shape
    grad_log_dt, grad_log_decay = torch.empty_like(log_dt), torch.empty_like(log_decay)
    grad_frequency, grad_C = torch.empty_like(frequency), torch.empty_like(C)
    grads = (grad_log_dt, grad_log_decay, grad_frequency, grad_C, None if B is None else torch.empty_like(B))
    run_over_rows(
        import_kernels("modes").backward,
        R * D,
        R * D * M * length * BACKWARD_WORK,
        grad.contiguous().view(R * D, length).numpy(),
        *_arrays(log_dt, log_decay, frequency, C, B),
        discrete.view(R * D, 4, M).numpy(),
        discretisation == "zero-order-hold",
        *_arrays(*grads),
    )
    return grads


def _arrays(log_dt: Tensor, log_decay: Tensor, frequency: Tensor, C: Tensor, B: Tensor | None) -> tuple[Any, ...]:
    """Return parameters, or their gradients, as arrays on their memory: (R D,), (R D, M), (R D, M) and pairs."""
    flat = (log_dt.view(-1), log_decay.flatten(0, 1), frequency.flatten(0, 1), C, B)
    return tuple(as_array(tensor, C, (0, 0, 0, 0)) for tensor in flat)
