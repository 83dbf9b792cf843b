# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The causal filter on NVIDIA GPUs: one kernel forward, one or two kernels and a sum backward.

A program takes a tile of rows (the steps of all sequences, one after the other) and channels, always entire vectors.
It loads the tile once per tap; all but the first of these loads hit the cache. The backward pass reads nothing but the
inputs. It computes the gradient of the argument of SiLU, then that of x; filters of a few taps have a kernel for both,
see `short_gradients`. The gradients of the filters and the bias are sums over all rows: each tile stores a partial sum,
and the partial sums are added in an order that does not depend on the number of replicas.

Constants of the kernels: T taps, TR rows and TC channels of a tile, D channels of a vector padded to DP, VECTORS
vectors that are normalised, ACC the accumulator's dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops.filter.reference import NORM_EPSILON
from sdssm.ops.filter.short_gradients import MOST_TAPS, SEGMENT, short_gradients_kernel
from sdssm.ops.filter.short_gradients import TILE_ENTRIES as SHORT_TILE_ENTRIES
from sdssm.ops.filter.tiles import channel_tile, vector_sums
from sdssm.ops.padding import next_power_of_two

#: Channels of a tile, 256 contiguous bytes, and its entries, without and with vectors, whose sums need more registers.
TILE_CHANNELS, TILE_ENTRIES, VECTOR_TILE_ENTRIES = 64, 2048, 1024
#: Filters of up to this many taps are unrolled; longer ones are a loop, because unrolled they would take minutes to
#: compile.
MAX_UNROLLED_TAPS = 8
#: If there are more partial sums than this, stacks of this many are added first: adding all of them in one pass would
#: keep only a few programs busy, for longer than everything else takes.
STACK = 256
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["rows", "L"]


@triton.jit
def load_tap(
    x, before, replica, row, row_mask, c, c_mask, rows, L, i,
    C: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Load the inputs of tap i, (TR, TC): T - 1 - i steps back, or from `before` at the start."""
    t = row % L
    distance = T - 1 - i
    offsets = (replica * rows + row - distance)[:, None] * C + c[None, :]
    inputs = tl.load(x + offsets, mask=(row_mask & (t >= distance))[:, None] & c_mask[None, :], other=0.0)
    if before is not None:
        offsets = ((replica * (rows // L) + row // L) * (T - 1) + t + i)[:, None] * C + c[None, :]
        inputs += tl.load(before + offsets, mask=(row_mask & (t < distance))[:, None] & c_mask[None, :], other=0.0)
    return inputs


@triton.jit
def weighted_tap(
    x, filters, before, replica, row, row_mask, c, c_mask, rows, L, i,
    C: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Return the term of tap i in the convolution, (TR, TC)."""
    weight = tl.load(filters + (replica * T + i) * C + c, mask=c_mask, other=0.0)
    return weight[None, :] * load_tap(x, before, replica, row, row_mask, c, c_mask, rows, L, i, C, T)


@triton.jit
def convolve(
    x, filters, bias, before, replica, row, row_mask, c, c_mask, rows, L,
    C: tl.constexpr, T: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Return the argument of SiLU, (TR, TC)."""
    z = tl.zeros((TR, TC), ACC)
    if UNROLL:
        for i in tl.static_range(T):
            z += weighted_tap(x, filters, before, replica, row, row_mask, c, c_mask, rows, L, i, C, T)
    else:
        for i in range(T):
            z += weighted_tap(x, filters, before, replica, row, row_mask, c, c_mask, rows, L, i, C, T)
    if bias is not None:
        z += tl.load(bias + replica * C + c, mask=c_mask, other=0.0)[None, :]
    return z


@triton.jit(do_not_specialize=ANY_SIZE)
def filter_forward_kernel(
    x, filters, bias, before, y, rows, L,
    C: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr,
    VECTORS: tl.constexpr, EPS: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill y (R, rows, C)."""
    replica = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    row_mask = row < rows
    c, c_mask = channel_tile(C, D, DP, TC)
    z = convolve(x, filters, bias, before, replica, row, row_mask, c, c_mask, rows, L, C, T, TR, TC, UNROLL, ACC)
    y_tile = z * tl.sigmoid(z)
    if VECTORS > 0:
        inverse = 1.0 / tl.sqrt(vector_sums(y_tile * y_tile, TR, TC, DP) + EPS)
        y_tile = tl.where((c < VECTORS * D)[None, :], y_tile * inverse, y_tile)
    tl.store(y + (replica * rows + row)[:, None] * C + c[None, :], y_tile, mask=row_mask[:, None] & c_mask[None, :])


@triton.jit(do_not_specialize=ANY_SIZE)
def silu_gradient_kernel(
    grad, x, filters, bias, before, dz, partials, rows, L,
    C: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr,
    VECTORS: tl.constexpr, EPS: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill dz, the gradient of the argument z of SiLU, and the partial sums for filters and bias.

    partials is (tiles, R, T, C), or (tiles, R, T + 1, C) with a bias, which comes last. For v = y / |y| the gradient is
    dy = (dv - v <v, dv>) / |y|, and with s = sigmoid(z) it is dz = dy s (1 + z (1 - s)).
    """
    replica = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    row_mask = row < rows
    c, c_mask = channel_tile(C, D, DP, TC)
    offsets = (replica * rows + row)[:, None] * C + c[None, :]
    mask = row_mask[:, None] & c_mask[None, :]
    z = convolve(x, filters, bias, before, replica, row, row_mask, c, c_mask, rows, L, C, T, TR, TC, UNROLL, ACC)
    s = tl.sigmoid(z)
    dz_tile = tl.load(grad + offsets, mask=mask, other=0.0)
    if VECTORS > 0:
        y_tile = z * s
        inverse = 1.0 / tl.sqrt(vector_sums(y_tile * y_tile, TR, TC, DP) + EPS)
        y_tile = y_tile * inverse
        projection = vector_sums(y_tile * dz_tile, TR, TC, DP)
        dz_tile = tl.where((c < VECTORS * D)[None, :], (dz_tile - y_tile * projection) * inverse, dz_tile)
    dz_tile = dz_tile * s * (1.0 + z * (1.0 - s))
    tl.store(dz + offsets, dz_tile, mask=mask)
    row_count: tl.constexpr = T if bias is None else T + 1
    pointers = partials + (tl.program_id(0) * tl.num_programs(2) + replica) * row_count * C + c
    if UNROLL:
        for i in tl.static_range(T):
            inputs = load_tap(x, before, replica, row, row_mask, c, c_mask, rows, L, i, C, T)
            tl.store(pointers + i * C, tl.sum(dz_tile * inputs, axis=0), mask=c_mask)
    else:
        for i in range(T):
            inputs = load_tap(x, before, replica, row, row_mask, c, c_mask, rows, L, i, C, T)
            tl.store(pointers + i * C, tl.sum(dz_tile * inputs, axis=0), mask=c_mask)
    if bias is not None:
        tl.store(pointers + T * C, tl.sum(dz_tile, axis=0), mask=c_mask)


@triton.jit
def tap_gradient(
    dz, filters, replica, sequence, position, row_mask, c, c_mask, B, L, i, C: tl.constexpr, T: tl.constexpr
):
    """Return the gradient of the inputs at `position` through tap i, (TR, TC).

    Positions are counted from the start of `before`.
    """
    t = position - i
    offsets = ((replica * B + sequence) * L + t)[:, None] * C + c[None, :]
    dz_tile = tl.load(dz + offsets, mask=(row_mask & (t >= 0) & (t < L))[:, None] & c_mask[None, :], other=0.0)
    return tl.load(filters + (replica * T + i) * C + c, mask=c_mask, other=0.0)[None, :] * dz_tile


@triton.jit(do_not_specialize=["B", "L"])
def input_gradient_kernel(
    dz, filters, dx, dbefore, B, L,
    C: tl.constexpr, T: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill dx and dbefore, the gradients of x and before: the filter applied in reverse."""
    replica = tl.program_id(2).to(tl.int64)
    skipped: tl.constexpr = T - 1 if dbefore is None else 0
    length = L + (T - 1 - skipped)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    sequence = row // length
    position = row % length + skipped
    row_mask = sequence < B
    c = tl.program_id(1) * TC + tl.arange(0, TC)
    c_mask = c < C
    accumulator = tl.zeros((TR, TC), ACC)
    if UNROLL:
        for i in tl.static_range(T):
            accumulator += tap_gradient(dz, filters, replica, sequence, position, row_mask, c, c_mask, B, L, i, C, T)
    else:
        for i in range(T):
            accumulator += tap_gradient(dz, filters, replica, sequence, position, row_mask, c, c_mask, B, L, i, C, T)
    offsets = ((replica * B + sequence) * L + position - (T - 1))[:, None] * C + c[None, :]
    tl.store(dx + offsets, accumulator, mask=(row_mask & (position >= T - 1))[:, None] & c_mask[None, :])
    if dbefore is not None:
        offsets = ((replica * B + sequence) * (T - 1) + position)[:, None] * C + c[None, :]
        tl.store(dbefore + offsets, accumulator, mask=(row_mask & (position < T - 1))[:, None] & c_mask[None, :])


def kernel_constants(
    C: int, T: int, dtype: torch.dtype, vectors: int, size: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the constants of all kernels, and those of the kernels that normalise vectors.

    None of them depends on the number of replicas, so that a replica gets the same bits alone and together with others.
    """
    DP = next_power_of_two(size) if vectors else min(TILE_CHANNELS, next_power_of_two(C))
    TC = max(DP, min(TILE_CHANNELS, next_power_of_two(C)))
    constants = {
        "C": C,
        "T": T,
        "TR": max(1, (VECTOR_TILE_ENTRIES if vectors else TILE_ENTRIES) // TC),
        "TC": TC,
        "UNROLL": T <= MAX_UNROLLED_TAPS,
        "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": 4,
    }
    vector_constants = {"D": size if vectors else DP, "DP": DP, "VECTORS": vectors, "EPS": NORM_EPSILON}
    return constants, vector_constants


def launch_grid(count: int, R: int, C: int, constants: dict[str, Any], D: int, DP: int) -> tuple[int, int, int]:
    """Return the numbers of row tiles, channel tiles and replicas.

    Vectors are padded from D to DP channels.
    """
    return triton.cdiv(count, constants["TR"]), triton.cdiv(triton.cdiv(C, D) * DP, constants["TC"]), R


def forward(
    x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None, vectors: int, size: int
) -> tuple[Tensor]:
    """Return y (R, B, L, C) for x (R, B, L, C), filters (R, T, C), bias (R, C), before (R, B, T - 1, C)."""
    R, B, L, C = x.shape
    constants, vector_constants = kernel_constants(C, filters.shape[1], x.dtype, vectors, size)
    y = torch.empty_like(x)
    if y.numel():
        filter_forward_kernel[launch_grid(B * L, R, C, constants, vector_constants["D"], vector_constants["DP"])](
            x, filters, bias, before, y, B * L, L, **constants, **vector_constants
        )
    return (y,)


def backward(
    grad: Tensor, x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None,
    y: Tensor, vectors: int, size: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of x, filters, bias and before."""
    C, T = x.shape[-1], filters.shape[1]
    dx, dbefore = torch.empty_like(x), None if before is None else torch.empty_like(before)
    if not x.numel():
        return dx, torch.zeros_like(filters), None if bias is None else torch.zeros_like(bias), dbefore
    constants, vector_constants = kernel_constants(C, T, x.dtype, vectors, size)
    if MOST_TAPS.value >= T:
        partials = gradients_in_one_pass(grad, x, filters, bias, before, dx, dbefore, constants, vector_constants)
    else:
        partials = gradients_in_two_passes(grad, x, filters, bias, before, dx, dbefore, constants, vector_constants)
    dfilters, dbias = sum_parts(partials, x.dtype, None if bias is None else T * C)
    return dx, dfilters.view(filters.shape), dbias, dbefore


def gradients_in_one_pass(
    grad: Tensor, x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None,
    dx: Tensor, dbefore: Tensor | None, constants: dict[str, Any], vector_constants: dict[str, Any],
) -> Tensor:  # fmt: skip
    """Fill dx and dbefore; return the partial sums (parts, R, entries) of the gradients of filters and bias."""
    R, B, L, C = x.shape
    constants = {name: value for name, value in constants.items() if name != "UNROLL"}
    constants |= {"TR": max(1, SHORT_TILE_ENTRIES // constants["TC"]), "SEGMENT": SEGMENT}
    segments = triton.cdiv(L, SEGMENT)
    grid = launch_grid(B, R, C, constants, vector_constants["D"], vector_constants["DP"])
    grid = (grid[0] * segments, *grid[1:])
    parts = stacked_parts(x, grid[0], (constants["T"] + (bias is not None)) * C)
    short_gradients_kernel[grid](
        grad, x, filters, bias, before, dx, dbefore, parts, B, L, segments, **constants, **vector_constants
    )
    return sum_stacks(parts, grid[0])


def gradients_in_two_passes(
    grad: Tensor, x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None,
    dx: Tensor, dbefore: Tensor | None, constants: dict[str, Any], vector_constants: dict[str, Any],
) -> Tensor:  # fmt: skip
    """Do the same with two kernels, for filters of any length."""
    R, B, L, C = x.shape
    T = constants["T"]
    grid = launch_grid(B * L, R, C, constants, vector_constants["D"], vector_constants["DP"])
    dz = torch.empty_like(x)
    parts = stacked_parts(x, grid[0], (T + (bias is not None)) * C)
    silu_gradient_kernel[grid](grad, x, filters, bias, before, dz, parts, B * L, L, **constants, **vector_constants)
    length = L if before is None else L + T - 1
    input_gradient_kernel[launch_grid(B * length, R, C, constants, 1, 1)](dz, filters, dx, dbefore, B, L, **constants)
    return sum_stacks(parts, grid[0])


def stacked_parts(x: Tensor, count: int, entries: int) -> Tensor:
    """Return memory for `count` partial sums of each replica, in entire stacks; those beyond `count` are zero."""
    stacks = triton.cdiv(count, STACK)
    parts = x.new_empty(count if stacks == 1 else stacks * STACK, x.shape[0], entries)
    parts[count:].zero_()
    return parts


def sum_stacks(parts: Tensor, count: int) -> Tensor:
    """Add the partial sums within each stack: partial sum n belongs to stack n mod stacks."""
    stacks = triton.cdiv(count, STACK)
    if stacks == 1:
        return parts
    R, entries = parts.shape[1:]
    return sum_parts(parts.view(STACK, stacks * R, entries), parts.dtype)[0].view(stacks, R, entries)
