# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""A gated convolution after a short one, at the end of strings, on NVIDIA GPUs.

The short convolution of symbols is a linear map of windows, vectors of T V + 1 entries: for each delay a one-hot vector
of the symbol, and 1 inside of strings, which carries the bias. Its matrix is small, so windows and products with it, on
tensor cores with the precision of float32, are computed again wherever they are needed. Strings are read from their
ends on, so that the second convolution is a sum.

A program of the forward kernel computes a tile of strings. One of the backward kernel takes some times of a tile of
strings, and stores partial sums of the gradients of the taps and of the matrix. The last kernel adds these in a fixed
order.

Constants of the kernels: L the length, T and U taps, V symbols, W entries of a window padded to WP, D channels in tiles
of TD, TB strings of a tile, STEPS times of a program.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.symbols import reverse_symbols
from sdssm.ops._triton.tensor_cores import product_constants
from sdssm.ops.linear.triton import tile_side
from sdssm.ops.padding import next_power_of_two

#: Strings of a tile and warps of the forward and of the backward kernel; times of a program of the latter.
FORWARD_STRINGS, FORWARD_WARPS = 16, 4
BACKWARD_STRINGS, BACKWARD_WARPS = 32, 4
BACKWARD_STEPS = 4
#: The most channels of a tile.
CHANNELS = 64


@triton.jit
def window(symbols, replica, time, b, entry, B, L: tl.constexpr, T: tl.constexpr, V: tl.constexpr, ACC: tl.constexpr):
    """Return the windows of strings b that start at a time before the end; b and entry are a column and a row, or
    a row and a column."""
    delay = tl.where(entry < T * V, entry // V, 0)
    place = time + delay
    mask = (b < B) & (place < L) & (entry <= T * V)
    symbol = tl.load(symbols + (replica * L + place) * B + b, mask=mask, other=-1)
    is_set = tl.where(entry < T * V, symbol == entry % V, symbol >= 0)
    return tl.where(is_set & mask, 1.0, 0.0).to(ACC)


@triton.jit
def window_matrix(
    table, weight, bias, replica, part, entry, d, T: tl.constexpr, V: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Return the matrix (WP, TD) that maps windows to x_1, x_2 or v (part 0, 1 or 2)."""
    channel = part * D + d
    inside = (d < D) & (entry < T * V)
    x = tl.load(table + (replica * V + entry % V) * 3 * D + channel, mask=inside, other=0.0)
    x *= tl.load(weight + (replica * 3 * D + channel) * T + T - 1 - entry // V, mask=inside, other=0.0)
    return x + tl.load(bias + replica * 3 * D + channel, mask=(d < D) & (entry == T * V), other=0.0)


@triton.jit
def load_tap(kernel, skip, row, mask, time, U: tl.constexpr):
    """Load the tap of channels at a time; the skip connection is a part of the first one."""
    tap = tl.load(kernel + row * U + time, mask=mask & (time < U), other=0.0)
    return tap + tl.load(skip + row, mask=mask & (time == 0), other=0.0)


@triton.jit(do_not_specialize=["B"])
def window_forward_kernel(
    table, weight, bias, kernel, skip, symbols, y, B,
    L: tl.constexpr, T: tl.constexpr, U: tl.constexpr, V: tl.constexpr, WP: tl.constexpr,
    D: tl.constexpr, TD: tl.constexpr, TB: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill y (R, B, D)."""
    replica = tl.program_id(2).to(tl.int64)
    b = (tl.program_id(0) * TB + tl.arange(0, TB))[:, None]
    d = (tl.program_id(1) * TD + tl.arange(0, TD))[None, :]
    entry = tl.arange(0, WP)
    matrix2 = window_matrix(table, weight, bias, replica, 1, entry[:, None], d, T, V, D)
    matrix3 = window_matrix(table, weight, bias, replica, 2, entry[:, None], d, T, V, D)
    total = tl.zeros((TB, TD), ACC)
    for time in range(L):
        windows = window(symbols, replica, time, b, entry[None, :], B, L, T, V, ACC)
        x2 = tl.dot(windows, matrix2, input_precision=PRECISION, out_dtype=ACC)
        v = tl.dot(windows, matrix3, input_precision=PRECISION, out_dtype=ACC)
        total += x2 * v * load_tap(kernel, skip, replica * D + d, d < D, time, U)
    w = window(symbols, replica, 0, b, entry[None, :], B, L, T, V, ACC)
    matrix1 = window_matrix(table, weight, bias, replica, 0, entry[:, None], d, T, V, D)
    total *= tl.dot(w, matrix1, input_precision=PRECISION, out_dtype=ACC)
    tl.store(y + (replica * B + b) * D + d, total, mask=(b < B) & (d < D))


@triton.jit(do_not_specialize=["B"])
def window_backward_kernel(
    grad, table, weight, bias, kernel, skip, symbols, parts, tap_parts, B,
    L: tl.constexpr, T: tl.constexpr, U: tl.constexpr, V: tl.constexpr, WP: tl.constexpr,
    D: tl.constexpr, TD: tl.constexpr, TB: tl.constexpr, STEPS: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill partial sums of the gradients: of the matrix (pieces, R, 3, WP, D), of the taps (tiles of strings, R, L, D).

    A piece is some times of a tile of strings.
    """
    tiles: tl.constexpr = (D + TD - 1) // TD
    replica = tl.program_id(2).to(tl.int64)
    tile = tl.program_id(1) // tiles
    channel = tl.program_id(1) % tiles * TD + tl.arange(0, TD)
    d = channel[None, :]
    b = tile * TB + tl.arange(0, TB)
    entry = tl.arange(0, WP)
    matrix1 = window_matrix(table, weight, bias, replica, 0, entry[:, None], d, T, V, D)
    matrix2 = window_matrix(table, weight, bias, replica, 1, entry[:, None], d, T, V, D)
    matrix3 = window_matrix(table, weight, bias, replica, 2, entry[:, None], d, T, V, D)
    d_matrix2 = tl.zeros((WP, TD), ACC)
    d_matrix3 = tl.zeros((WP, TD), ACC)
    total = tl.zeros((TB, TD), ACC)
    g = tl.load(grad + (replica * B + b[:, None]) * D + d, mask=(b < B)[:, None] & (d < D), other=0.0)
    w = window(symbols, replica, 0, b[:, None], entry[None, :], B, L, T, V, ACC)
    arriving = g * tl.dot(w, matrix1, input_precision=PRECISION, out_dtype=ACC)
    first = tl.program_id(0) * STEPS
    for time in range(first, tl.minimum(first + STEPS, L)):
        tap = load_tap(kernel, skip, replica * D + d, d < D, time, U)
        w = window(symbols, replica, time, b[:, None], entry[None, :], B, L, T, V, ACC)
        x2 = tl.dot(w, matrix2, input_precision=PRECISION, out_dtype=ACC)
        v = tl.dot(w, matrix3, input_precision=PRECISION, out_dtype=ACC)
        total += tap * x2 * v
        d_tap = tl.sum(arriving * x2 * v, axis=0)
        turned = window(symbols, replica, time, b[None, :], entry[:, None], B, L, T, V, ACC)
        d_matrix2 = tl.dot(turned, arriving * tap * v, d_matrix2, input_precision=PRECISION, out_dtype=ACC)
        d_matrix3 = tl.dot(turned, arriving * tap * x2, d_matrix3, input_precision=PRECISION, out_dtype=ACC)
        place = tap_parts + ((tile * tl.num_programs(2) + replica) * L + time) * D + channel
        tl.store(place, d_tap, mask=channel < D)
    ends = window(symbols, replica, 0, b[None, :], entry[:, None], B, L, T, V, ACC)
    d_matrix1 = tl.dot(ends, g * total, input_precision=PRECISION, out_dtype=ACC)
    piece = tile * tl.num_programs(0) + tl.program_id(0)
    part = parts + (piece * tl.num_programs(2) + replica) * 3 * WP * D + entry[:, None] * D + d
    mask = (entry >= 0)[:, None] & (d < D)
    tl.store(part, d_matrix1, mask=mask)
    tl.store(part + WP * D, d_matrix2, mask=mask)
    tl.store(part + 2 * WP * D, d_matrix3, mask=mask)


@triton.jit(do_not_specialize=["pieces", "tiles"])
def window_parameters_kernel(
    table, weight, parts, tap_parts, d_table, d_weight, d_bias, d_kernel, d_skip, pieces, tiles,
    L: tl.constexpr, LP: tl.constexpr, T: tl.constexpr, U: tl.constexpr, V: tl.constexpr, WP: tl.constexpr,
    D: tl.constexpr, TD: tl.constexpr,
):  # fmt: skip
    """Fill the gradients: a program those for some channels of x_1, x_2 or v, or of the taps."""
    replica = tl.program_id(2).to(tl.int64)
    part = tl.program_id(1)
    d = tl.program_id(0) * TD + tl.arange(0, TD)
    if part == 3:
        time = tl.arange(0, LP)[:, None]
        taps = tl.zeros((LP, TD), parts.dtype.element_ty)
        for tile in range(tiles):
            at = ((tile * tl.num_programs(2) + replica) * L + time) * D + d[None, :]
            taps += tl.load(tap_parts + at, mask=(time < L) & (d < D)[None, :], other=0.0)
        row = replica * D + d[None, :]
        tl.store(d_kernel + row * U + time, taps, mask=(time < L) & (time < U) & (d < D)[None, :])
        tl.store(d_skip + replica * D + d, tl.sum(tl.where(time == 0, taps, 0.0), axis=0), mask=d < D)
    else:
        entry = tl.arange(0, WP)[:, None]
        mask = (d < D)[None, :] & (entry <= T * V)
        total = tl.zeros((WP, TD), parts.dtype.element_ty)
        for piece in range(pieces):
            at = ((piece * tl.num_programs(2) + replica) * 3 + part) * WP * D
            total += tl.load(parts + at + entry * D + d[None, :], mask=mask, other=0.0)
        column = replica * 3 * D + part * D + d
        tl.store(d_bias + column, tl.sum(tl.where(entry == T * V, total, 0.0), axis=0), mask=d < D)
        inside = mask & (entry < T * V)
        source = table + replica * V * 3 * D + part * D + d[None, :]
        x = total * tl.load(source + (entry % V) * 3 * D, mask=inside, other=0.0)
        w = total * tl.load(weight + column[None, :] * T + T - 1 - entry // V, mask=inside, other=0.0)
        for delay in range(T):
            d_tap = tl.sum(tl.where(entry // V == delay, x, 0.0), axis=0)
            tl.store(d_weight + column * T + T - 1 - delay, d_tap, mask=d < D)
        for v in range(V):
            d_row = tl.sum(tl.where(entry % V == v, w, 0.0), axis=0)
            tl.store(d_table + (replica * V + v) * 3 * D + part * D + d, d_row, mask=d < D)


def kernel_constants(table: Tensor, weight: Tensor) -> dict[str, Any]:
    """Return the compile-time constants that all kernels have."""
    V, D, T = table.shape[1], table.shape[2] // 3, weight.shape[2]
    return {"T": T, "V": V, "WP": tile_side(T * V + 1, 64), "D": D, "TD": tile_side(D, CHANNELS)}


def forward(
    table: Tensor, weight: Tensor, bias: Tensor, kernel: Tensor, skip: Tensor, tokens: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return y (R, B, D), and the strings from their ends on, (R, L, B)."""
    (R, B, L), D = tokens.shape, skip.shape[1]
    symbols, y = reverse_symbols(tokens, lengths), table.new_empty(R, B, D)
    constants, TB = kernel_constants(table, weight), tile_side(B, FORWARD_STRINGS)
    if y.numel():
        window_forward_kernel[(triton.cdiv(B, TB), triton.cdiv(D, constants["TD"]), R)](
            table, weight, bias, kernel, skip, symbols, y, B,
            L=L, U=kernel.shape[2], TB=TB, **constants, **product_constants(table),
            num_warps=FORWARD_WARPS,
        )  # fmt: skip
    return y, symbols


def backward(
    grad: Tensor,
    table: Tensor,
    weight: Tensor,
    bias: Tensor,
    kernel: Tensor,
    skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None,
    symbols: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of table, weight, bias, kernel and skip connection."""
    (R, B, L), D, U = tokens.shape, skip.shape[1], kernel.shape[2]
    if not grad.numel():
        return tuple(torch.zeros_like(parameter) for parameter in (table, weight, bias, kernel, skip))
    d_table, d_weight, d_bias, d_skip = (torch.empty_like(parameter) for parameter in (table, weight, bias, skip))
    d_kernel = torch.zeros_like(kernel) if U > L else torch.empty_like(kernel)  # later taps have no effect
    constants, TB = kernel_constants(table, weight), tile_side(B, BACKWARD_STRINGS)
    steps, tiles, columns = triton.cdiv(L, BACKWARD_STEPS), triton.cdiv(B, TB), triton.cdiv(D, constants["TD"])
    parts, tap_parts = table.new_empty(steps * tiles, R, 3, constants["WP"], D), table.new_empty(tiles, R, L, D)
    window_backward_kernel[(steps, tiles * columns, R)](
        grad, table, weight, bias, kernel, skip, symbols, parts, tap_parts, B,
        L=L, U=U, TB=TB, STEPS=BACKWARD_STEPS, **constants, **product_constants(table),
        num_warps=BACKWARD_WARPS, num_stages=1,
    )  # fmt: skip
    narrow = {**constants, "TD": min(16, next_power_of_two(D))}
    window_parameters_kernel[(triton.cdiv(D, narrow["TD"]), 4, R)](
        table, weight, parts, tap_parts, d_table, d_weight, d_bias, d_kernel, d_skip, steps * tiles, tiles,
        L=L, LP=next_power_of_two(L), U=U, **narrow, num_warps=4,
    )  # fmt: skip
    return d_table, d_weight, d_bias, d_kernel, d_skip
