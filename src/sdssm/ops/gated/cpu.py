"""Two gated convolutions at the end of strings on the CPU, compiled by numba; there is no implementation without it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from sdssm.ops.compiled import import_kernels, run_over_rows, string_arrays
from sdssm.ops.reversed_rows import check_strings
from sdssm.ops.taps import taps_with_skip, taps_without_skip

#: The most sums of a gradient for each replica. They bound the number of threads of a backward pass.
MOST_GROUPS = 8


def forward(
    table: Tensor,
    first: Tensor,
    first_skip: Tensor,
    second: Tensor,
    second_skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return y (R, B, D), and the results of the first convolution for the gradient, (R, B, L, D)."""
    check_strings("gated_end", tokens, lengths, table.shape[1])
    (R, B, L), D = tokens.shape, first_skip.shape[1]
    taps, last_taps = taps_with_skip(first, first_skip), taps_with_skip(second, second_skip)
    y, filtered = table.new_empty(R, B, D), table.new_empty(R, B, L, D)
    run_over_rows(
        import_kernels("gated").forward,
        R * B,
        R * B * L * D * taps.shape[1] // 2,
        table.detach().view(*table.shape[:2], 3, D).numpy(),
        taps.flatten(0, 1).numpy(),
        last_taps.flatten(0, 1).numpy(),
        *string_arrays(tokens, lengths),
        filtered.flatten(0, 2).numpy(),
        y.flatten(0, 1).numpy(),
    )
    return y, filtered


def backward(
    grad: Tensor,
    table: Tensor,
    first: Tensor,
    first_skip: Tensor,
    second: Tensor,
    second_skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
    filtered: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of table, taps and skips."""
    R, B, L = tokens.shape
    D, groups = first_skip.shape[1], max(1, min(MOST_GROUPS, B))
    taps, last_taps = taps_with_skip(first, first_skip), taps_with_skip(second, second_skip)
    padding = import_kernels("gated").PADDING
    grads = [torch.empty_like(tensor.repeat_interleave(groups, 0)) for tensor in (table, taps, last_taps)]
    run_over_rows(
        import_kernels("gated").backward,
        R * groups,
        R * B * L * D * taps.shape[1],
        grad.contiguous().flatten(0, 1).numpy(),
        table.detach().view(*table.shape[:2], 3, D).numpy(),
        taps.flatten(0, 1).numpy(),
        pad(taps.flip(1), (0, 0, padding, padding)).flatten(0, 1).numpy(),
        last_taps.flatten(0, 1).numpy(),
        *string_arrays(tokens, lengths),
        filtered.flatten(0, 2).numpy(),
        grads[0].view(-1, table.shape[1], 3, D).numpy(),
        *(tensor.flatten(0, 1).numpy() for tensor in grads[1:]),
    )
    grad_table, grad_taps, grad_last = (tensor.view(R, groups, *tensor.shape[1:]).sum(1) for tensor in grads)
    return grad_table, *taps_without_skip(grad_taps, first), *taps_without_skip(grad_last, second)
