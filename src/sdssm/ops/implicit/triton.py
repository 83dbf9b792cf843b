# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Filters from a small network on NVIDIA GPUs: one kernel forward, two backward.

A program of the forward kernel computes some taps of a replica, and stores the arguments of the sines. The first
backward kernel computes their gradients in the same way, the second one those of the parameters of a layer, which are
sums over all taps. The products run on tensor cores with the precision of float32.

Constants of the kernels: L taps padded to LP, in tiles of TL; F features padded to FP, H hidden units padded to HP, D
channels in tiles of TD.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.tensor_cores import product_constants
from sdssm.ops.linear.triton import tile_side

#: The most channels and taps of a tile; warps of a program.
CHANNELS, TAPS = 64, 16
FORWARD_WARPS, BACKWARD_WARPS, PARAMETER_WARPS = 4, 4, 8


@triton.jit
def load_matrix(matrix, rows, columns, height, width):
    """Load a matrix (height, width) at these rows and columns, whose shapes fit each other; 0 outside."""
    return tl.load(matrix + rows * width + columns, mask=(rows < height) & (columns < width), other=0.0)


@triton.jit
def implicit_forward_kernel(
    features, window, frequency, weight1, bias1, weight2, bias2, weight3, bias3, last, taps, arguments, longest, wide,
    L: tl.constexpr, TL: tl.constexpr, F: tl.constexpr, FP: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, D: tl.constexpr, TD: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill taps (R, D, L), and the arguments of the sines without their frequency, (R, 3, L, H)."""
    replica = tl.program_id(0).to(tl.int64)
    time = (tl.program_id(1) * TL + tl.arange(0, TL))[None, :]
    f = tl.arange(0, FP)
    j = tl.arange(0, HP)
    unit = j[:, None]
    i = j[None, :]
    rate = tl.load(frequency + replica * H + unit, mask=unit < H, other=0.0)
    inside = (time < L) & (unit < H)
    place = arguments + (replica * 3 * L + time) * H + unit

    x = load_matrix(features + replica * longest * F, time, f[:, None], L, F)
    w = load_matrix(weight1 + replica * H * F, unit, f[None, :], H, F)
    z = tl.dot(w, x, input_precision=PRECISION, out_dtype=ACC)
    z += tl.load(bias1 + replica * H + unit, mask=unit < H, other=0.0)
    tl.store(place, z, mask=inside)
    w = load_matrix(weight2 + replica * H * H, unit, i, H, H)
    z = tl.dot(w, tl.sin(rate * z), input_precision=PRECISION, out_dtype=ACC)
    z += tl.load(bias2 + replica * H + unit, mask=unit < H, other=0.0)
    tl.store(place + L * H, z, mask=inside)
    w = load_matrix(weight3 + replica * H * H, unit, i, H, H)
    z = tl.dot(w, tl.sin(rate * z), input_precision=PRECISION, out_dtype=ACC)
    z += tl.load(bias3 + replica * H + unit, mask=unit < H, other=0.0)
    tl.store(place + 2 * L * H, z, mask=inside)
    x = tl.sin(rate * z)
    for first in range(0, D, TD):
        d = first + tl.arange(0, TD)[:, None]
        row = load_matrix(last + replica * D * H, d, i, D, H)
        tap = tl.dot(row, x, input_precision=PRECISION, out_dtype=ACC)
        tap *= load_matrix(window + replica * wide * D, time, d, L, D)
        tl.store(taps + (replica * D + d) * L + time, tap, mask=(time < L) & (d < D))


@triton.jit
def implicit_backward_kernel(
    grad, window, frequency, weight1, weight2, weight3, last, arguments, slopes, d_features, longest, wide,
    L: tl.constexpr, TL: tl.constexpr, F: tl.constexpr, FP: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, D: tl.constexpr, TD: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of the products of frequency and argument, (R, 3, L, H), and those of the first features."""
    replica = tl.program_id(0).to(tl.int64)
    time = (tl.program_id(1) * TL + tl.arange(0, TL))[None, :]
    f = tl.arange(0, FP)[:, None]
    unit = tl.arange(0, HP)[:, None]
    i = tl.arange(0, HP)[None, :]
    rate = tl.load(frequency + replica * H + unit, mask=unit < H, other=0.0)
    inside = (time < L) & (unit < H)
    place = (replica * 3 * L + time) * H + unit

    # Matrices are loaded transposed.
    dx = tl.zeros((HP, TL), ACC)
    for first in range(0, D, TD):
        d = first + tl.arange(0, TD)
        dh = tl.load(grad + (replica * D + d[:, None]) * L + time, mask=(time < L) & (d < D)[:, None], other=0.0)
        dh *= load_matrix(window + replica * wide * D, time, d[:, None], L, D)
        w = load_matrix(last + replica * D * H, d[None, :], unit, D, H)
        dx = tl.dot(w, dh, dx, input_precision=PRECISION, out_dtype=ACC)
    slope = dx * tl.cos(rate * tl.load(arguments + place + 2 * L * H, mask=inside, other=0.0))
    tl.store(slopes + place + 2 * L * H, slope, mask=inside)
    w = load_matrix(weight3 + replica * H * H, i, unit, H, H)
    dx = tl.dot(w, slope * rate, input_precision=PRECISION, out_dtype=ACC)
    slope = dx * tl.cos(rate * tl.load(arguments + place + L * H, mask=inside, other=0.0))
    tl.store(slopes + place + L * H, slope, mask=inside)
    w = load_matrix(weight2 + replica * H * H, i, unit, H, H)
    dx = tl.dot(w, slope * rate, input_precision=PRECISION, out_dtype=ACC)
    slope = dx * tl.cos(rate * tl.load(arguments + place, mask=inside, other=0.0))
    tl.store(slopes + place, slope, mask=inside)
    w = load_matrix(weight1 + replica * H * F, i, f, H, F)
    dx = tl.dot(w, slope * rate, input_precision=PRECISION, out_dtype=ACC)
    tl.store(d_features + (replica * longest + time) * F + f, dx, mask=(time < L) & (f < F))


@triton.jit
def store_layer(
    d_weight, d_bias, slopes, x, rate, replica, base, columns,
    L: tl.constexpr, LP: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, K: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Store the gradients of weight (H, K) and bias (H,) of a layer with inputs x (LP, K padded)."""
    j = tl.arange(0, HP)
    time = tl.arange(0, LP)
    slope = tl.load(
        slopes + base + time[None, :] * H + j[:, None], mask=(time < L)[None, :] & (j < H)[:, None], other=0.0
    )
    slope *= rate[:, None]
    dw = tl.dot(slope, x, input_precision=PRECISION, out_dtype=ACC)
    tl.store(d_weight + (replica * H + j[:, None]) * K + columns, dw, mask=(j < H)[:, None] & (columns < K))
    tl.store(d_bias + replica * H + j, tl.sum(slope, axis=1), mask=j < H)


@triton.jit
def implicit_parameters_kernel(
    grad, features, window, frequency, arguments, slopes,
    d_frequency, d_weight1, d_bias1, d_weight2, d_bias2, d_weight3, d_bias3, d_last, longest, wide,
    L: tl.constexpr, LP: tl.constexpr, F: tl.constexpr, FP: tl.constexpr,
    H: tl.constexpr, HP: tl.constexpr, D: tl.constexpr, TD: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of the parameters: a program those of one of the four layers, or of a tile of the last one."""
    replica = tl.program_id(0).to(tl.int64)
    layer = tl.program_id(1)
    time = tl.arange(0, LP)[:, None]
    j = tl.arange(0, HP)
    i = j[None, :]
    rate = tl.load(frequency + replica * H + j, mask=j < H, other=0.0)
    inside = (time < L) & (i < H)
    base = replica * 3 * L * H
    place = base + time * H + i
    if layer == 0:
        f = tl.arange(0, FP)[None, :]
        first = load_matrix(features + replica * longest * F, time, f, L, F)
        store_layer(d_weight1, d_bias1, slopes, first, rate, replica, base, f, L, LP, H, HP, F, PRECISION, ACC)
        total = tl.zeros((LP, HP), ACC)
        for at in range(3):
            slope = tl.load(slopes + place + at * L * H, mask=inside, other=0.0)
            total += slope * tl.load(arguments + place + at * L * H, mask=inside, other=0.0)
        tl.store(d_frequency + replica * H + j, tl.sum(total, axis=0), mask=j < H)
    else:
        x = tl.sin(
            rate[None, :] * tl.load(arguments + place + (tl.minimum(layer, 3) - 1) * L * H, mask=inside, other=0.0)
        )
        if layer == 1:
            store_layer(d_weight2, d_bias2, slopes, x, rate, replica, base + L * H, i, L, LP, H, HP, H, PRECISION, ACC)
        elif layer == 2:
            store_layer(
                d_weight3, d_bias3, slopes, x, rate, replica, base + 2 * L * H, i, L, LP, H, HP, H, PRECISION, ACC
            )
        else:
            d = (layer - 3) * TD + tl.arange(0, TD)[:, None]
            t = tl.arange(0, LP)[None, :]
            dh = tl.load(grad + (replica * D + d) * L + t, mask=(t < L) & (d < D), other=0.0)
            dh *= tl.load(window + (replica * wide + t) * D + d, mask=(t < L) & (d < D), other=0.0)
            dw = tl.dot(dh, x, input_precision=PRECISION, out_dtype=ACC)
            tl.store(d_last + (replica * D + d) * H + i, dw, mask=(d < D) & (i < H))


def kernel_constants(features: Tensor, frequency: Tensor, last: Tensor, length: int) -> dict[str, Any]:
    """Return the compile-time constants that all kernels take."""
    F, H, D = features.shape[2], frequency.shape[1], last.shape[1]
    return {
        "L": length, "F": F, "FP": tile_side(F, 64), "H": H, "HP": tile_side(H, 64),
        "D": D, "TD": tile_side(D, CHANNELS), **product_constants(features),
    }  # fmt: skip


def forward(
    features: Tensor,
    window: Tensor,
    frequency: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
    last: Tensor,
    length: int,
) -> tuple[Tensor, Tensor]:
    """Return taps (R, D, L), and the arguments of the sines without their frequency, (R, 3, L, H)."""
    (R, D, H), longest = last.shape, features.shape[1]
    taps, arguments = last.new_empty(R, D, length), last.new_empty(R, 3, length, H)
    if taps.numel():
        implicit_forward_kernel[(R, triton.cdiv(length, TAPS))](
            features, window, frequency, weight1, bias1, weight2, bias2, weight3, bias3, last, taps, arguments,
            longest, window.shape[1], TL=TAPS, **kernel_constants(features, frequency, last, length),
            num_warps=FORWARD_WARPS,
        )  # fmt: skip
    return taps, arguments


def backward(
    grad: Tensor,
    features: Tensor,
    window: Tensor,
    frequency: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
    last: Tensor,
    arguments: Tensor,
    length: int,
) -> tuple[Tensor, ...]:
    """Return the gradients of all tensors but the window."""
    parameters = (frequency, weight1, bias1, weight2, bias2, weight3, bias3, last)
    d_features, longest = torch.zeros_like(features), features.shape[1]
    if not grad.numel():
        return (d_features, *(torch.zeros_like(parameter) for parameter in parameters))
    grads = tuple(torch.empty_like(parameter) for parameter in parameters)
    slopes, R = torch.empty_like(arguments), len(grad)
    constants = kernel_constants(features, frequency, last, length)
    implicit_backward_kernel[(R, triton.cdiv(length, TAPS))](
        grad, window, frequency, weight1, weight2, weight3, last, arguments, slopes, d_features,
        longest, window.shape[1], TL=TAPS, **constants, num_warps=BACKWARD_WARPS,
    )  # fmt: skip
    implicit_parameters_kernel[(R, 3 + triton.cdiv(last.shape[1], constants["TD"]))](
        grad, features, window, frequency, arguments, slopes, *grads,
        longest, window.shape[1], LP=tile_side(length, 64), **constants, num_warps=PARAMETER_WARPS,
    )  # fmt: skip
    return (d_features, *grads)
