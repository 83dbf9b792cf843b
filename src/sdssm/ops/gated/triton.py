# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Gated convolutions at the end of strings on NVIDIA GPUs: a program computes one channel of a tile of strings.

Strings are read from their ends on, so that the second convolution is a sum. The first is a product of its Toeplitz
matrix (LP, LP) with the inputs (LP, TB), on tensor cores with the precision of float32. q, k and v are selected from
the table when they are needed. In the backward kernel a program loops over all strings, so that it owns gradients of
its channel: no partial sums. The first convolution is computed again.

Constants of the kernels: L the length padded to LP, T and U taps, D channels, V symbols padded to VP, TB strings.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.symbols import reverse_symbols, select
from sdssm.ops._triton.tensor_cores import product_constants
from sdssm.ops.linear.triton import SMALLEST
from sdssm.ops.padding import next_power_of_two

#: Strings of a tile and warps of the forward and of the backward kernel.
FORWARD_STRINGS, FORWARD_WARPS = 128, 4
BACKWARD_STRINGS, BACKWARD_WARPS = 16, 2


@triton.jit
def load_taps(taps, skip, row, delay, T: tl.constexpr):
    """Load taps of a channel by their delays, with the skip connection as a part of that without delay."""
    tap = tl.load(taps + row * T + delay, mask=(delay >= 0) & (delay < T), other=0.0)
    return tap + tl.where(delay == 0, tl.load(skip + row), 0.0)


@triton.jit(do_not_specialize=["B"])
def gated_forward_kernel(
    table, first, first_skip, second, second_skip, symbols, y, B,
    L: tl.constexpr, LP: tl.constexpr, T: tl.constexpr, U: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    VP: tl.constexpr, TB: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill y (R, B, D)."""
    replica = tl.program_id(2).to(tl.int64)
    channel = tl.program_id(0)
    row = replica * D + channel
    l = tl.arange(0, LP)  # noqa: E741  # times before the end
    b = tl.program_id(1) * TB + tl.arange(0, TB)
    column = replica * V * 3 * D + channel
    mask = (l < L)[:, None] & (b < B)[None, :]
    symbol = tl.load(symbols + (replica * L + l[:, None]) * B + b[None, :], mask=mask, other=-1)
    matrix = load_taps(first, first_skip, row, l[None, :] - l[:, None], T)
    k = select(table, column + D, symbol, V, 3 * D)
    filtered = tl.dot(matrix, k, input_precision=PRECISION, out_dtype=ACC)
    v = select(table, column + 2 * D, symbol, V, 3 * D)
    total = tl.sum(filtered * v * load_taps(second, second_skip, row, l, U)[:, None], axis=0)
    last = tl.load(symbols + replica * L * B + b, mask=b < B, other=-1)
    q = select(table, column, last, V, 3 * D)
    tl.store(y + (replica * B + b) * D + channel, q * total, mask=b < B)


@triton.jit
def load_gradient(
    grad, table, symbols, replica, channel, column, start, B,
    L: tl.constexpr, LP: tl.constexpr, D: tl.constexpr, V: tl.constexpr, TB: tl.constexpr,
):  # fmt: skip
    """Return the symbols (LP, TB) of a tile, the last ones (TB,), the gradient of y, and that of the second sum."""
    l = tl.arange(0, LP)  # noqa: E741
    b = start + tl.arange(0, TB)
    mask = (l < L)[:, None] & (b < B)[None, :]
    symbol = tl.load(symbols + (replica * L + l[:, None]) * B + b[None, :], mask=mask, other=-1)
    last = tl.load(symbols + replica * L * B + b, mask=b < B, other=-1)
    g = tl.load(grad + (replica * B + b) * D + channel, mask=b < B, other=0.0)
    return symbol, last, g, g * select(table, column, last, V, 3 * D)


@triton.jit
def sums_of_symbols(totals, symbol, values, entry, V: tl.constexpr):
    """Add to totals (VP,) the sum of the values at each symbol."""
    for v in tl.static_range(V):
        at_symbol = tl.where(symbol == v, values, 0.0)
        totals += tl.where(entry == v, tl.sum(tl.ravel(at_symbol), axis=0), 0.0)
    return totals


@triton.jit(do_not_specialize=["B"])
def gated_backward_kernel(
    grad, table, first, first_skip, second, second_skip, symbols,
    d_table, d_first, d_first_skip, d_second, d_second_skip, B,
    L: tl.constexpr, LP: tl.constexpr, T: tl.constexpr, U: tl.constexpr, D: tl.constexpr, V: tl.constexpr,
    VP: tl.constexpr, TB: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of a channel: of q, v and the second taps, or of k, or of the first taps.

    These three need one product with a matrix each, and are different programs to need fewer registers.
    """
    replica = tl.program_id(1).to(tl.int64)
    channel = tl.program_id(0)
    row = replica * D + channel
    l = tl.arange(0, LP)  # noqa: E741  # times before the end
    entry = tl.arange(0, VP)
    column = replica * V * 3 * D + channel
    place = d_table + column + entry * 3 * D
    weight = load_taps(second, second_skip, row, l, U)
    delay = l[None, :] - l[:, None]
    if tl.program_id(2) == 0:
        matrix = load_taps(first, first_skip, row, delay, T)
        d_weight = tl.zeros((LP,), ACC)
        dq = tl.zeros((VP,), ACC)
        dv = tl.zeros((VP,), ACC)
        for start in range(0, B, TB):
            symbol, last, g, arriving = load_gradient(
                grad, table, symbols, replica, channel, column, start, B, L, LP, D, V, TB
            )
            k = select(table, column + D, symbol, V, 3 * D)
            filtered = tl.dot(matrix, k, input_precision=PRECISION, out_dtype=ACC)
            d_product = filtered * select(table, column + 2 * D, symbol, V, 3 * D)
            d_weight += tl.sum(d_product * arriving[None, :], axis=1)
            g *= tl.sum(d_product * weight[:, None], axis=0)
            dq = sums_of_symbols(dq, last, g, entry, V)
            dv = sums_of_symbols(dv, symbol, filtered * weight[:, None] * arriving[None, :], entry, V)
        tl.store(place, dq, mask=entry < V)
        tl.store(place + 2 * D, dv, mask=entry < V)
        tl.store(d_second + row * U + l, d_weight, mask=l < U)
        tl.store(d_second_skip + row, tl.sum(tl.where(l == 0, d_weight, 0.0), axis=0))
    elif tl.program_id(2) == 1:
        matrix = load_taps(first, first_skip, row, -delay, T)  # transposed
        dk = tl.zeros((VP,), ACC)
        for start in range(0, B, TB):
            symbol, last, g, arriving = load_gradient(
                grad, table, symbols, replica, channel, column, start, B, L, LP, D, V, TB
            )
            d_filtered = select(table, column + 2 * D, symbol, V, 3 * D) * weight[:, None] * arriving[None, :]
            d_k = tl.dot(matrix, d_filtered, input_precision=PRECISION, out_dtype=ACC)
            dk = sums_of_symbols(dk, symbol, d_k, entry, V)
        tl.store(place + D, dk, mask=entry < V)
    else:
        d_matrix = tl.zeros((LP, LP), ACC)
        for start in range(0, B, TB):
            symbol, last, g, arriving = load_gradient(
                grad, table, symbols, replica, channel, column, start, B, L, LP, D, V, TB
            )
            k = select(table, column + D, symbol, V, 3 * D)
            d_filtered = select(table, column + 2 * D, symbol, V, 3 * D) * weight[:, None] * arriving[None, :]
            d_matrix = tl.dot(d_filtered, tl.trans(k), d_matrix, input_precision=PRECISION, out_dtype=ACC)
        # The gradient of a tap is the sum of a diagonal of the matrix.
        later = l[:, None] + l[None, :]
        diagonals = tl.gather(d_matrix, tl.minimum(later, LP - 1), 1)
        d_taps = tl.sum(tl.where(later < LP, diagonals, 0.0), axis=0)
        tl.store(d_first + row * T + l, d_taps, mask=l < T)
        tl.store(d_first_skip + row, tl.sum(tl.where(l == 0, d_taps, 0.0), axis=0))


def kernel_constants(table: Tensor, first: Tensor, second: Tensor, length: int, strings: int, B: int) -> dict[str, Any]:
    """Return the compile-time constants of a kernel with `strings` strings in a tile."""
    V = table.shape[1]
    return {
        "L": length, "LP": max(SMALLEST, next_power_of_two(length)), "T": first.shape[2], "U": second.shape[2],
        "D": first.shape[1], "V": V, "VP": next_power_of_two(V),
        "TB": max(SMALLEST, min(strings, next_power_of_two(B))), **product_constants(table),
    }  # fmt: skip


def forward(
    table: Tensor,
    first: Tensor,
    first_skip: Tensor,
    second: Tensor,
    second_skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return y (R, B, D), and the strings from their ends on, (R, L, B)."""
    (R, B, L), D = tokens.shape, first.shape[1]
    symbols, y = reverse_symbols(tokens, lengths), table.new_empty(R, B, D)
    if y.numel():
        constants = kernel_constants(table, first, second, L, FORWARD_STRINGS, B)
        gated_forward_kernel[(D, triton.cdiv(B, constants["TB"]), R)](
            table, first, first_skip, second, second_skip, symbols, y, B, **constants, num_warps=FORWARD_WARPS
        )
    return y, symbols


def backward(
    grad: Tensor,
    table: Tensor,
    first: Tensor,
    first_skip: Tensor,
    second: Tensor,
    second_skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
    symbols: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of the table, the taps and the skip connections."""
    (R, B, L), D = tokens.shape, first.shape[1]
    parameters = (table, first, first_skip, second, second_skip)
    if not grad.numel():
        return tuple(torch.zeros_like(parameter) for parameter in parameters)
    # Taps beyond the length of the strings have no effect.
    new = [
        torch.zeros_like if p.dim() == 3 and p.shape[2] > L and p is not table else torch.empty_like for p in parameters
    ]
    grads = tuple(make(parameter) for make, parameter in zip(new, parameters, strict=True))
    gated_backward_kernel[(D, R, 3)](
        grad, *parameters, symbols, *grads, B,
        **kernel_constants(table, first, second, L, BACKWARD_STRINGS, B), num_warps=BACKWARD_WARPS, num_stages=1,
    )  # fmt: skip
    return grads
