"""A gated convolution after a short one on the CPU: a table of all windows, and a compiled loop over strings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdssm.ops.compiled import import_kernels, run_over_rows, string_arrays
from sdssm.ops.reversed_rows import check_strings
from sdssm.ops.tables import cached_table
from sdssm.ops.taps import taps_with_skip, taps_without_skip

#: The most sums of a gradient for each replica. They bound the number of threads of a backward pass.
MOST_GROUPS = 4


@cached_table
def window_symbols(symbols: int, taps: int) -> Tensor:
    """Return the symbols of all windows as one-hot vectors, (W, T V), that with delay 0 first.

    >>> window_symbols(torch.zeros(1), 1, 2).tolist()  # the only symbol, or none, twice
    [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    """
    digits = 2 ** symbols.bit_length()
    numbers = torch.arange(digits**taps)[:, None] // digits ** torch.arange(taps) % digits
    one_hot: Tensor = numbers[..., None] == torch.arange(symbols)
    return one_hot.flatten(1)


def window_table(table: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return what the short convolution makes of each window, (R, W, 3 D)."""
    rows = weight.mT.flip(1)[:, :, None] * table[:, None]  # (R, T, V, 3 D)
    symbols = window_symbols(table, table.shape[1], weight.shape[2])
    return torch.baddbmm(bias[:, None], symbols.expand(len(table), *symbols.shape), rows.flatten(1, 2))


def forward(
    table: Tensor, weight: Tensor, bias: Tensor, kernel: Tensor, skip: Tensor, tokens: Tensor, lengths: Tensor | None
) -> tuple[Tensor, ...]:
    """Return y (R, B, D), and the table of windows (R, W, 3 D) for the gradient."""
    check_strings("window_end", tokens, lengths, table.shape[1])
    filtered = window_table(table, weight, bias)
    R, B, _ = tokens.shape
    y = table.new_empty(R, B, skip.shape[1])
    arguments = _arguments(filtered, kernel, skip, tokens, lengths, table.shape[1])
    run_over_rows(
        import_kernels("windows").forward, R * B, y.numel() * tokens.shape[2], *arguments, y.flatten(0, 1).numpy()
    )
    return y, filtered


def _arguments(
    filtered: Tensor, kernel: Tensor, skip: Tensor, tokens: Tensor, lengths: Tensor | None, symbols: int
) -> tuple[Any, ...]:
    """Return the arguments of the kernels, from the bits of a symbol to the lengths."""
    x1, x2, v = filtered.chunk(3, -1)
    tensors = (x1.contiguous(), x2 * v, taps_with_skip(kernel, skip))
    return symbols.bit_length(), *(tensor.numpy() for tensor in tensors), *string_arrays(tokens, lengths)


def backward(
    grad: Tensor,
    table: Tensor,
    weight: Tensor,
    bias: Tensor,
    kernel: Tensor,
    skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
    filtered: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of table, weight, bias, kernel and skip."""
    (R, B, length), (V, T), D = tokens.shape, (table.shape[1], weight.shape[2]), skip.shape[1]
    groups = max(1, min(MOST_GROUPS, B))
    arguments = _arguments(filtered, kernel, skip, tokens, lengths, V)
    grad_gates, grad_products = (grad.new_empty(R * groups, filtered.shape[1], D) for _ in range(2))
    grad_taps = grad.new_empty(R * groups, max(kernel.shape[2], 1), D)
    run_over_rows(
        import_kernels("windows").backward,
        R * groups,
        R * B * length * D * 3,
        grad.contiguous().flatten(0, 1).numpy(),
        *arguments,
        *(tensor.numpy() for tensor in (grad_gates, grad_products, grad_taps)),
    )
    gates, products, taps = (x.view(R, groups, *x.shape[1:]).sum(1) for x in (grad_gates, grad_products, grad_taps))
    _, x2, v = filtered.chunk(3, -1)
    grad_filtered = torch.cat([gates, products * v, products * x2], -1)  # (R, W, 3 D)
    symbols = window_symbols(table, V, T)
    grad_rows = (symbols.mT @ grad_filtered).view(R, T, V, 3 * D)
    grad_weight = (grad_rows * table[:, None]).sum(2).flip(1).mT.contiguous()
    grad_table = (grad_rows * weight.mT.flip(1)[:, :, None]).sum(1)
    return grad_table, grad_weight, grad_filtered.sum(1), *taps_without_skip(taps, kernel)
