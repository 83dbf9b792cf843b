"""The token scan compiled by numba (optional: sdssm[numba]): the arrays that the kernels take."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdssm.first_start import wait_for_kernels
from sdssm.ops import compiled
from sdssm.ops.transitions import flush_threshold, no_factors

#: Multiplications below which a second thread is not worth it. It costs 30 us, in which one thread computes 2 million.
LEAST_WORK = 8_000_000


@functools.cache
def _kernels() -> Any:
    wait_for_kernels()
    return compiled.import_kernels("token")


def forward(
    matrices: Tensor,
    index: Tensor,
    drive: Tensor | None,
    drive_index: Tensor,
    x0: Tensor | None,
    lengths: Tensor | None,
    rescale: bool,
) -> tuple[Tensor, Tensor]:
    """Return states (P, L, N) and factors (P, L) or empty.

    matrices (M, N, N), index (P, L) the matrix of each step, drive (Q, N), drive_index (P, L) its row for each step,
    x0 (P, N), lengths (P,).
    """
    numba_kernels = _kernels()
    (rows, length), size = index.shape, matrices.shape[-1]
    states = matrices.new_empty(rows, length, size)
    factors = matrices.new_empty(rows, length) if rescale else no_factors(matrices)
    columns = matrices.mT.contiguous()
    compiled.run_over_rows(
        numba_kernels.token_forward, rows, rows * length * size**2, _array(columns), _array(index),
        compiled.as_array(drive, matrices, (0, 0)), _array(drive_index), compiled.as_array(x0, matrices, (0, 0)),
        compiled.lengths_array(lengths, rows, length), torch.finfo(matrices.dtype).tiny,
        states.view(rows * length, size).numpy(), factors.view(-1).numpy(), least=LEAST_WORK,
    )  # fmt: skip
    return states, factors


def backward(
    matrices: Tensor,
    index: Tensor,
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of every A_t x_{t-1} + b_t, (P, L, N), and of x0, (P, N)."""
    numba_kernels = _kernels()
    rows, length, size = states.shape
    adjoints, grad_x0 = torch.empty_like(states), states.new_empty(rows, size)
    flat_grads = None if grad_states is None else grad_states.flatten(0, 1)
    compiled.run_over_rows(
        numba_kernels.token_backward, rows, rows * length * size**2, _array(matrices), _array(index),
        compiled.as_array(flat_grads, states, (0, 0)), compiled.as_array(grad_final, states, (0, 0)),
        compiled.lengths_array(lengths, rows, length), _array(states.flatten(0, 1)), _array(factors.flatten()),
        flush_threshold(states.dtype), adjoints.view(rows * length, size).numpy(), grad_x0.numpy(),
        least=LEAST_WORK,
    )  # fmt: skip
    return adjoints, grad_x0


def sum_by_symbol(
    matrices: int, index: Tensor, adjoints: Tensor, states: Tensor, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Sum adjoint x_{t-1}^T, (M, N, N), and adjoint, (M, N), over the steps of each of M matrices."""
    numba_kernels = _kernels()
    rows, length, size = states.shape
    order, before, ends = (np.empty(count, np.int64) for count in (rows * length, rows * length, 2 * matrices))
    steps = compiled.lengths_array(lengths, rows, length)
    numba_kernels.sort_by_symbol(_array(index), steps, order, before, ends)
    grad_A, grad_b = states.new_empty(matrices, size, size), states.new_empty(matrices, size)
    compiled.run_over_rows(
        numba_kernels.matrix_gradients, -(-size // numba_kernels.TILE), rows * length * size**2, order, before, ends,
        _array(adjoints.flatten(0, 1)), _array(states.flatten(0, 1)), compiled.as_array(x0, states, (0, 0)),
        grad_A.numpy(), grad_b.numpy(), least=LEAST_WORK,
    )  # fmt: skip
    return grad_A, grad_b


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().contiguous().numpy()
