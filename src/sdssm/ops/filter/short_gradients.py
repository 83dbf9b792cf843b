# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The gradients of a causal filter of up to four taps on NVIDIA GPUs, in one pass over its inputs.

A program goes backward through a segment of some sequences, with the inputs and the gradients of the last steps in
registers, so that it loads each number once. It starts T - 1 steps after its segment, whose gradients of z it needs.

Constants of the kernel as in `triton`: T taps, TR sequences and TC channels of a tile, vectors of D channels padded to
DP, VECTORS of which are normalised, ACC the accumulator's dtype; SEGMENT steps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops.filter.tiles import channel_tile, vector_sums

#: The most taps. A filter with fewer is one with zeros as its first taps.
MOST_TAPS = tl.constexpr(4)
#: Steps of a segment, and entries of a tile, 2 per thread: more would leave a GPU without enough loads in flight.
SEGMENT, TILE_ENTRIES = 48, 256


@triton.jit
def load_tap_weight(filters, replica, c, c_mask, i: tl.constexpr, C: tl.constexpr, T: tl.constexpr):
    """Load the weights of tap i of four, (1, TC); zero if the filter does not have it."""
    tap: tl.constexpr = i + T - 4
    if tap < 0:
        return tl.zeros((1, c.shape[0]), filters.dtype.element_ty)
    else:
        return tl.load(filters + (replica * T + tap) * C + c, mask=c_mask, other=0.0)[None, :]


@triton.jit
def load_input(x, before, row, mask, c, t, L, C: tl.constexpr, T: tl.constexpr):
    """Load the inputs of step t, (TR, TC); before step 0 those of `before`, or zeros."""
    inputs = tl.load(x + ((row * L + t)[:, None] * C + c[None, :]), mask=mask & (t >= 0), other=0.0)
    if before is not None:
        offsets = (row * (T - 1) + (t + T - 1))[:, None] * C + c[None, :]
        inputs += tl.load(before + offsets, mask=mask & (t < 0) & (t + T - 1 >= 0), other=0.0)
    return inputs


@triton.jit(do_not_specialize=["B", "L", "segments"])
def short_gradients_kernel(
    grad, x, filters, bias, before, dx, dbefore, partials, B, L, segments,
    C: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr,
    VECTORS: tl.constexpr, EPS: tl.constexpr, SEGMENT: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill dx, dbefore and the partial sums for filters and bias, (programs, R, T or T + 1, C).

    For v = y / |y| the gradient is dy = (dv - v <v, dv>) / |y|; with s = sigmoid(z) it is dz = dy s (1 + z (1 - s)).
    """
    replica = tl.program_id(2).to(tl.int64)
    start = (tl.program_id(0) % segments) * SEGMENT
    end = tl.minimum(start + SEGMENT, L)
    sequence = (tl.program_id(0) // segments) * TR + tl.arange(0, TR)
    row = replica * B + sequence
    c, c_mask = channel_tile(C, D, DP, TC)
    mask = (sequence < B)[:, None] & c_mask[None, :]
    w0 = load_tap_weight(filters, replica, c, c_mask, 0, C, T)
    w1 = load_tap_weight(filters, replica, c, c_mask, 1, C, T)
    w2 = load_tap_weight(filters, replica, c, c_mask, 2, C, T)
    w3 = load_tap_weight(filters, replica, c, c_mask, 3, C, T)
    shift = tl.zeros((1, TC), ACC)
    if bias is not None:
        shift = tl.load(bias + replica * C + c, mask=c_mask, other=0.0)[None, :]
    last = tl.minimum(end + T - 2, L - 1)
    x3 = load_input(x, before, row, mask, c, last, L, C, T)
    x2 = load_input(x, before, row, mask, c, last - 1, L, C, T)
    x1 = load_input(x, before, row, mask, c, last - 2, L, C, T)
    zeros = tl.zeros((TR, TC), ACC)
    # Those of the steps after t. Each needs zeros of its own: the compiler would take a variable that gets the first
    # value of another one in the first step for one that the loop does not change.
    dz1, dz2, dz3 = tl.zeros((TR, TC), ACC), tl.zeros((TR, TC), ACC), tl.zeros((TR, TC), ACC)
    sum0, sum1, sum2, sum3, sum_bias = zeros, zeros, zeros, zeros, zeros
    # What a step needs is loaded one step earlier.
    next_x = load_input(x, before, row, mask, c, last - 3, L, C, T)
    next_grad = tl.load(grad + (row * L + last)[:, None] * C + c[None, :], mask=mask, other=0.0)
    for back in range(last - start + 1):
        t = last - back
        x0, dz = next_x, next_grad
        offsets = (row * L + t)[:, None] * C + c[None, :]
        next_x = load_input(x, before, row, mask, c, t - 4, L, C, T)
        next_grad = tl.load(grad + offsets - C, mask=mask & (t > start), other=0.0)
        z = w3 * x3 + w2 * x2 + w1 * x1 + w0 * x0 + shift
        s = tl.sigmoid(z)
        if VECTORS > 0:
            y = z * s
            inverse = 1.0 / tl.sqrt(vector_sums(y * y, TR, TC, DP) + EPS)
            y = y * inverse
            projection = vector_sums(y * dz, TR, TC, DP)
            dz = tl.where((c < VECTORS * D)[None, :], (dz - y * projection) * inverse, dz)
        dz = dz * s * (1.0 + z * (1.0 - s))
        tl.store(dx + offsets, w3 * dz + w2 * dz1 + w1 * dz2 + w0 * dz3, mask=mask & (t < end))
        own = tl.where(t < end, dz, 0.0)
        sum0 += own * x0
        sum1 += own * x1
        sum2 += own * x2
        sum3 += own * x3
        sum_bias += own
        dz3, dz2, dz1 = dz2, dz1, dz
        x3, x2, x1 = x2, x1, x0
    if dbefore is not None:
        for back in tl.static_range(T - 1):  # the steps before 0, where z has no gradient
            offsets = (row * (T - 1) + (T - 2 - back))[:, None] * C + c[None, :]
            tl.store(dbefore + offsets, w2 * dz1 + w1 * dz2 + w0 * dz3, mask=mask & (start == 0))
            dz3, dz2, dz1 = dz2, dz1, zeros
    row_count: tl.constexpr = T if bias is None else T + 1
    pointers = partials + (tl.program_id(0).to(tl.int64) * tl.num_programs(2) + replica) * row_count * C + c
    tl.store(pointers + (T - 1) * C, tl.sum(sum3, axis=0), mask=c_mask)
    if T > 1:
        tl.store(pointers + (T - 2) * C, tl.sum(sum2, axis=0), mask=c_mask)
    if T > 2:
        tl.store(pointers + (T - 3) * C, tl.sum(sum1, axis=0), mask=c_mask)
    if T > 3:
        tl.store(pointers, tl.sum(sum0, axis=0), mask=c_mask)
    if bias is not None:
        tl.store(pointers + T * C, tl.sum(sum_bias, axis=0), mask=c_mask)
