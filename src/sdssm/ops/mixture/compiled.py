"""The recurrent passes of the mixture scan compiled by numba, on several threads; see `numba_kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdssm.ops.compiled import as_array, import_kernels, lengths_array, run_over_rows
from sdssm.ops.transitions import flush_threshold, no_factors

#: Entries of the mixed matrices that exist at a time for each thread, few enough for the second cache, and the most
#: steps of them: more save no more reading of the dictionary.
ENTRIES_AT_ONCE, STEPS_AT_ONCE = 1 << 15, 8
#: The most sums of the dictionary's gradient for each replica. They bound the number of threads of a backward pass.
MOST_GROUPS = 16


def forward(
    dictionary: Tensor,
    weights: Tensor,
    p: Tensor | None,
    norms: Tensor | None,
    drive: Tensor | None,
    x0: Tensor | None,
    lengths: Tensor | None,
    rescale: bool,
) -> tuple[Tensor, Tensor]:
    """Return states (P, L, N) and factors (P, L), empty unless `rescale`; fill the norms (P, L, N).

    dictionary (R, K, N, N), weights (P, L, K), drive (P, L, N), x0 (P, N), lengths (P,). p (P,) and norms are None
    without normalisation.
    """
    (rows, length, count), size = weights.shape, dictionary.shape[-1]
    states = dictionary.new_empty(rows, length, size)
    factors = dictionary.new_empty(rows, length) if rescale else no_factors(dictionary)
    run_over_rows(
        import_kernels("mixture").forward,
        rows,
        rows * length * size**2 * count,
        dictionary.detach().flatten(2).contiguous().numpy(),
        weights.detach().contiguous().numpy(),
        as_array(p, dictionary, (0,)),
        as_array(drive, dictionary, (0, 0, 0)),
        as_array(x0, dictionary, (0, 0)),
        lengths_array(lengths, rows, length),
        torch.finfo(dictionary.dtype).tiny,
        _steps_at_once(size),
        _array_to_fill(norms, dictionary, (0, 0, 0)),
        states.numpy(),
        _array_to_fill(factors if rescale else None, dictionary, (0, 0)),
    )
    return states, factors


def backward(
    dictionary: Tensor,
    weights: Tensor,
    p: Tensor | None,
    norms: Tensor | None,
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    x0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
    rescale: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of dictionary, weights, every A_t x_{t-1} + b_t (P, L, N), and x0 (P, N)."""
    rows, length, size = states.shape
    replicas, count = dictionary.shape[:2]
    # As many sums as take no more memory than the states, and one at least.
    groups = max(1, min(MOST_GROUPS, rows // replicas, states.numel() // dictionary.numel()))
    grad_dictionary = dictionary.new_empty(replicas, groups, count, size**2)
    grad_weights, adjoints = torch.empty_like(weights), torch.empty_like(states)
    grad_x0 = states.new_empty(rows, size)
    run_over_rows(
        import_kernels("mixture").backward,
        replicas * groups,
        rows * length * size**2 * count * 3,
        dictionary.detach().flatten(2).contiguous().numpy(),
        weights.detach().contiguous().numpy(),
        as_array(p, states, (0,)),
        as_array(norms, states, (0, 0, 0)),
        as_array(grad_states, states, (0, 0, 0)),
        as_array(grad_final, states, (0, 0)),
        as_array(x0, states, (0, 0)),
        lengths_array(lengths, rows, length),
        as_array(states, states, (0, 0, 0)),
        as_array(factors if rescale else None, states, (0, 0)),
        flush_threshold(states.dtype),
        _steps_at_once(size),
        adjoints.numpy(),
        grad_x0.numpy(),
        grad_dictionary.numpy(),
        grad_weights.numpy(),
    )
    return grad_dictionary.sum(1).reshape(dictionary.shape), grad_weights, adjoints, grad_x0


def _steps_at_once(size: int) -> int:
    """Return the number of steps whose matrices of N x N entries exist at a time for each thread."""
    return max(1, min(STEPS_AT_ONCE, ENTRIES_AT_ONCE // size**2))


def _array_to_fill(tensor: Tensor | None, like: Tensor, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a numpy view for a kernel to write; None becomes an empty array of the rank of `shape`."""
    return (like.new_empty((0,) * len(shape)) if tensor is None else tensor).numpy()
