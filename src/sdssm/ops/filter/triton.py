# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The causal filter on NVIDIA GPUs: one kernel forward; backward one for the slopes at SiLU, one for x, and sums.

A program takes a tile of rows (places of all strings, one after the other) and channels, whole vectors of them. It
reads the tile once for every tap: all but the first of these reads come from the cache. Nothing but the inputs is read
for the gradient. What the filters and the bias receive is a sum over all rows: each tile writes its part, and the parts
are added in an order that does not depend on the replicas beside.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import partial_sums
from sdssm.ops.filter.reference import LENGTH_EPSILON
from sdssm.ops.padding import power_of_two

#: Channels of a tile, 256 bytes in a row of memory, and its entries, 16 a thread: more would not fit the registers.
CHANNELS, ENTRIES = 64, 2048
#: Filters of up to this many taps are unrolled; longer ones are a loop, or a kernel would take minutes to compile.
UNROLLED = 8
#: Of more parts than so many, stacks of as many are added first: few programs would go through them for longer than all
#: else takes.
STACK = 256
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["rows", "L"]


@triton.jit
def channel_tile(C: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TC: tl.constexpr):
    """Channels of TC / DP vectors, each padded from D to DP: their numbers, and which there are."""
    j = tl.arange(0, TC)
    c = tl.program_id(1) * TC + j
    if D == DP:
        here = c < C
    else:
        c = (tl.program_id(1) * (TC // DP) + j // DP) * D + j % DP
        here = (c < C) & (j % DP < D)
    return c, here


@triton.jit
def tap(
    x, before, replica, row, inside, c, here, rows, L, i,
    C: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """The inputs that tap i sees, (TR, TC): T - 1 - i places back, before the string's first in `before`."""
    t = row % L
    back = T - 1 - i
    place = (replica * rows + row - back)[:, None] * C + c[None, :]
    found = tl.load(x + place, mask=(inside & (t >= back))[:, None] & here[None, :], other=0.0)
    if before is not None:
        place = ((replica * (rows // L) + row // L) * (T - 1) + t + i)[:, None] * C + c[None, :]
        found += tl.load(before + place, mask=(inside & (t < back))[:, None] & here[None, :], other=0.0)
    return found


@triton.jit
def weighted_tap(
    x, filters, before, replica, row, inside, c, here, rows, L, i,
    C: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    weight = tl.load(filters + (replica * T + i) * C + c, mask=here, other=0.0)
    return weight[None, :] * tap(x, before, replica, row, inside, c, here, rows, L, i, C, T)


@triton.jit
def convolved(
    x, filters, bias, before, replica, row, inside, c, here, rows, L,
    C: tl.constexpr, T: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """What SiLU takes, (TR, TC)."""
    z = tl.zeros((TR, TC), ACC)
    if UNROLL:
        for i in tl.static_range(T):
            z += weighted_tap(x, filters, before, replica, row, inside, c, here, rows, L, i, C, T)
    else:
        for i in range(T):
            z += weighted_tap(x, filters, before, replica, row, inside, c, here, rows, L, i, C, T)
    if bias is not None:
        z += tl.load(bias + replica * C + c, mask=here, other=0.0)[None, :]
    return z


@triton.jit
def sums_of_vectors(y, TR: tl.constexpr, TC: tl.constexpr, DP: tl.constexpr):
    """The sum over each vector, at all of its channels, (TR, TC)."""
    sums = tl.sum(tl.reshape(y, (TR, TC // DP, DP)), axis=2)
    return tl.reshape(tl.broadcast_to(sums[:, :, None], (TR, TC // DP, DP)), (TR, TC))


@triton.jit(do_not_specialize=ANY_SIZE)
def forward_kernel(
    x, filters, bias, before, y, rows, L,
    C: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr,
    VECTORS: tl.constexpr, EPS: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    inside = row < rows
    c, here = channel_tile(C, D, DP, TC)
    z = convolved(x, filters, bias, before, replica, row, inside, c, here, rows, L, C, T, TR, TC, UNROLL, ACC)
    found = z * tl.sigmoid(z)
    if VECTORS > 0:
        inverse = 1.0 / tl.sqrt(sums_of_vectors(found * found, TR, TC, DP) + EPS)
        found = tl.where((c < VECTORS * D)[None, :], found * inverse, found)
    tl.store(y + (replica * rows + row)[:, None] * C + c[None, :], found, mask=inside[:, None] & here[None, :])


@triton.jit(do_not_specialize=ANY_SIZE)
def slopes_kernel(
    grad, x, filters, bias, before, dz, parts, rows, L,
    C: tl.constexpr, T: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr,
    VECTORS: tl.constexpr, EPS: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The gradient of what SiLU takes; parts (tiles, R, T, C), or T + 1 with a bias, the last for it.

    For v = y / |y| it is dy = (dv - v <v, dv>) / |y|, and with s = sigmoid(z) dz = dy s (1 + z (1 - s)).
    """
    replica = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    inside = row < rows
    c, here = channel_tile(C, D, DP, TC)
    place = (replica * rows + row)[:, None] * C + c[None, :]
    mask = inside[:, None] & here[None, :]
    z = convolved(x, filters, bias, before, replica, row, inside, c, here, rows, L, C, T, TR, TC, UNROLL, ACC)
    s = tl.sigmoid(z)
    slope = tl.load(grad + place, mask=mask, other=0.0)
    if VECTORS > 0:
        found = z * s
        inverse = 1.0 / tl.sqrt(sums_of_vectors(found * found, TR, TC, DP) + EPS)
        found = found * inverse
        along = sums_of_vectors(found * slope, TR, TC, DP)
        slope = tl.where((c < VECTORS * D)[None, :], (slope - found * along) * inverse, slope)
    slope = slope * s * (1.0 + z * (1.0 - s))
    tl.store(dz + place, slope, mask=mask)
    many: tl.constexpr = T if bias is None else T + 1
    part = parts + (tl.program_id(0) * tl.num_programs(2) + replica) * many * C + c
    if UNROLL:
        for i in tl.static_range(T):
            seen = tap(x, before, replica, row, inside, c, here, rows, L, i, C, T)
            tl.store(part + i * C, tl.sum(slope * seen, axis=0), mask=here)
    else:
        for i in range(T):
            seen = tap(x, before, replica, row, inside, c, here, rows, L, i, C, T)
            tl.store(part + i * C, tl.sum(slope * seen, axis=0), mask=here)
    if bias is not None:
        tl.store(part + T * C, tl.sum(slope, axis=0), mask=here)


@triton.jit
def answered(dz, filters, replica, string, at, inside, c, here, B, L, i, C: tl.constexpr, T: tl.constexpr):
    """What the input at place `at`, counted from the first of `before`, receives through tap i, (TR, TC)."""
    t = at - i
    place = ((replica * B + string) * L + t)[:, None] * C + c[None, :]
    seen = tl.load(dz + place, mask=(inside & (t >= 0) & (t < L))[:, None] & here[None, :], other=0.0)
    return tl.load(filters + (replica * T + i) * C + c, mask=here, other=0.0)[None, :] * seen


@triton.jit(do_not_specialize=["B", "L"])
def inputs_kernel(
    dz, filters, dx, dbefore, B, L,
    C: tl.constexpr, T: tl.constexpr, TR: tl.constexpr, TC: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The gradients of x and before: the filter the other way round."""
    replica = tl.program_id(2).to(tl.int64)
    skipped: tl.constexpr = T - 1 if dbefore is None else 0
    length = L + (T - 1 - skipped)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    string = row // length
    at = row % length + skipped
    inside = string < B
    c = tl.program_id(1) * TC + tl.arange(0, TC)
    here = c < C
    total = tl.zeros((TR, TC), ACC)
    if UNROLL:
        for i in tl.static_range(T):
            total += answered(dz, filters, replica, string, at, inside, c, here, B, L, i, C, T)
    else:
        for i in range(T):
            total += answered(dz, filters, replica, string, at, inside, c, here, B, L, i, C, T)
    place = ((replica * B + string) * L + at - (T - 1))[:, None] * C + c[None, :]
    tl.store(dx + place, total, mask=(inside & (at >= T - 1))[:, None] & here[None, :])
    if dbefore is not None:
        place = ((replica * B + string) * (T - 1) + at)[:, None] * C + c[None, :]
        tl.store(dbefore + place, total, mask=(inside & (at < T - 1))[:, None] & here[None, :])


def constants(C: int, T: int, dtype: torch.dtype, vectors: int, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizes of the tiles, none of which depends on the replicas: of all kernels, and of those that know vectors."""
    padded = power_of_two(size) if vectors else min(CHANNELS, power_of_two(C))
    width = max(padded, min(CHANNELS, power_of_two(C)))
    common = {
        "C": C,
        "T": T,
        "TR": max(1, ENTRIES // width),
        "TC": width,
        "UNROLL": T <= UNROLLED,
        "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": 4,
    }
    own = {"D": size if vectors else padded, "DP": padded, "VECTORS": vectors, "EPS": LENGTH_EPSILON}
    return common, own


def grid(count: int, R: int, C: int, sizes: dict[str, Any], D: int, DP: int) -> tuple[int, int, int]:
    """Tiles of rows, of channels (vectors padded from D to DP), and replicas."""
    return triton.cdiv(count, sizes["TR"]), triton.cdiv(triton.cdiv(C, D) * DP, sizes["TC"]), R


def forward(
    x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None, vectors: int, size: int
) -> tuple[Tensor]:
    """x (R, B, L, C), filters (R, T, C), bias (R, C), before (R, B, T - 1, C) -> y (R, B, L, C)."""
    R, B, L, C = x.shape
    sizes, own = constants(C, filters.shape[1], x.dtype, vectors, size)
    y = torch.empty_like(x)
    if y.numel():
        forward_kernel[grid(B * L, R, C, sizes, own["D"], own["DP"])](
            x, filters, bias, before, y, B * L, L, **sizes, **own
        )
    return (y,)


def backward(
    grad: Tensor, x: Tensor, filters: Tensor, bias: Tensor | None, before: Tensor | None,
    y: Tensor, vectors: int, size: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of x, filters, bias and before."""
    R, B, L, C = x.shape
    T = filters.shape[1]
    dx, dbefore = torch.empty_like(x), None if before is None else torch.empty_like(before)
    if not x.numel():
        return dx, torch.zeros_like(filters), None if bias is None else torch.zeros_like(bias), dbefore
    sizes, own = constants(C, T, x.dtype, vectors, size)
    tiles = grid(B * L, R, C, sizes, own["D"], own["DP"])
    dz = torch.empty_like(x)
    row = (T if bias is None else T + 1) * C
    stacks = triton.cdiv(tiles[0], STACK)
    parts = x.new_empty(tiles[0] if stacks == 1 else stacks * STACK, R, row)
    parts[tiles[0] :].zero_()
    slopes_kernel[tiles](grad, x, filters, bias, before, dz, parts, B * L, L, **sizes, **own)
    length = L if before is None else L + T - 1
    inputs_kernel[grid(B * length, R, C, sizes, 1, 1)](dz, filters, dx, dbefore, B, L, **sizes)
    if stacks > 1:  # part n belongs to stack n mod stacks
        parts = partial_sums(parts.view(STACK, stacks * R, row), x.dtype)[0].view(stacks, R, row)
    dfilters, dbias = partial_sums(parts, x.dtype, None if bias is None else T * C)
    return dx, dfilters.view(filters.shape), dbias, dbefore
