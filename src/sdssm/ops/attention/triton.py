# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Attention with rotary positions on NVIDIA GPUs: one kernel forward and one backward.

A program has one row (a sequence) and a group of heads. It takes the queries in tiles and runs over the keys one by
one, with the running maximum and sum of the softmax. Heads with few entries would leave most of a tile of the tensor
cores empty; here a thread has all entries of a few queries of one head, and reads each key once for all of them.

The forward kernel first stores rotated queries and keys, for its own use and for the gradient: in each head first the
even entries, then the odd ones, which does not change their products. Of the softmax it saves the logarithm of the
sum. Backward, half of the programs run over keys for tiles of queries, the other half over queries for tiles of keys.
With D = <dy, y> the gradient of a score is w (<dy, v> - D); the programs of the second half store D first, since a
number is read faster than a vector. Steps past the length of a row take no time.

Vectors are two tensors, each with half of the entries: a thread loads 16 bytes at once, so a whole vector of 8 entries
would be spread over two threads, which would both compute its weight. Scores are in units of log 2.

Constants of the kernels: H heads of size S, TQ steps and TH heads of a tile, SH half the size of a head padded to a
power of two, FACTOR that of the rotated vectors or of their gradients, ACC the dtype of sums.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.attention.rotation import rotation_table
from sdssm.ops.padding import next_power_of_two

#: Steps and entries of the tile of a program, and its warps.
STEPS, ENTRIES, WARPS = 16, 64, 4
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["L", "count"]


@triton.jit
def head_tile(H: tl.constexpr, S: tl.constexpr, TH: tl.constexpr, SH: tl.constexpr):
    """Return the heads (1, TH, 1) and pairs (1, 1, SH) of a program, and the mask of existing ones."""
    h = (tl.program_id(1) * TH + tl.arange(0, TH))[None, :, None]
    i = tl.arange(0, SH)[None, None, :]
    return h, i, (h < H) & (i < S // 2)


@triton.jit
def load_halves(pointers, mask, S: tl.constexpr):
    """Load both halves of vectors."""
    return tl.load(pointers, mask=mask, other=0.0), tl.load(pointers + S // 2, mask=mask, other=0.0)


@triton.jit
def load_step(pointers, mask, H: tl.constexpr, S: tl.constexpr, TH: tl.constexpr, SH: tl.constexpr):
    """Load both halves of the vectors of one step, (1, TH, SH); without a mask if nothing is padded."""
    if H % TH == 0 and S == 2 * SH:
        first = tl.load(pointers)
        second = tl.load(pointers + S // 2)
    else:
        first, second = load_halves(pointers, mask, S)
    return first, second


@triton.jit
def inner_product(first, second, third, fourth):
    """Return <(first, second), (third, fourth)>, without the last axis."""
    return tl.sum(first * third + second * fourth, axis=2)


@triton.jit
def load_rotation(table, positions, t, t_mask, i, mask, count, S: tl.constexpr):
    """Return cosine and sine for steps t and pairs i, (T, TH, SH)."""
    places = tl.load(positions + t, mask=t_mask, other=0) * (S // 2) + i
    cos = tl.load(table + places, mask=t_mask & mask, other=0.0)
    return cos, tl.load(table + (count + 1) * (S // 2) + places, mask=t_mask & mask, other=0.0)


@triton.jit
def score(
    q0, q1, keys, j, t, length, mask,
    H: tl.constexpr, S: tl.constexpr, TH: tl.constexpr, SH: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Return the scores of key j for a tile of queries, (TQ, TH); past the end they are -inf."""
    k0, k1 = load_step(keys + tl.minimum(j, length - 1) * 2 * H * S, mask, H, S, TH, SH)
    seen = (j < length) & (t >= j) if CAUSAL else (j < length) & (t >= 0)
    return tl.where(seen, inner_product(q0, q1, k0, k1), float("-inf"))


@triton.jit
def query_range(row, length, L, END: tl.constexpr):
    """Return the first query, the end of the outputs, and the index of the first output minus the first query.

    With END the only query is the last one of a row.
    """
    begin = tl.maximum(length - 1, 0) if END else 0
    stop = begin + 1 if END else L
    return begin, stop, row - begin if END else row * L


@triton.jit
def store_zeros(place, zero, start, stop, i, mask, TQ: tl.constexpr, S: tl.constexpr, STEP: tl.constexpr):
    """Store zeros for the steps start .. stop - 1."""
    for first in range(start, stop, TQ):
        t = (first + tl.arange(0, TQ))[:, None, None]
        tl.store(place + t * STEP + i, zero, mask=(t < stop) & mask)
        tl.store(place + t * STEP + i + S // 2, zero, mask=(t < stop) & mask)


@triton.jit(do_not_specialize=ANY_SIZE)
def attention_forward_kernel(
    qkv, positions, lengths, table, y, rotated, logs, L, count,
    FACTOR: tl.constexpr, H: tl.constexpr, S: tl.constexpr, TQ: tl.constexpr, TH: tl.constexpr, SH: tl.constexpr,
    CAUSAL: tl.constexpr, END: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill y (N, T, H, S), rotated queries and keys (N, L, 2, H, S), and the logarithms of the sums (N, T, H)."""
    row = tl.program_id(0).to(tl.int64)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    h, i, mask = head_tile(H, S, TH, SH)
    begin, stop, offset = query_range(row, length, L, END)
    HS: tl.constexpr = H * S
    inputs = qkv + row * L * 3 * HS + h * S
    outputs = y + offset * HS + h * S + i
    turned = rotated + row * L * 2 * HS + h * S + i
    for first in range(0, length, TQ):
        t = (first + tl.arange(0, TQ))[:, None, None]
        inside = (t < length) & mask
        cos, sin = load_rotation(table, positions + row * L, t, t < length, i, mask, count, S)
        for part in tl.static_range(2):
            even = tl.load(inputs + t * 3 * HS + part * HS + 2 * i, mask=inside, other=0.0)
            odd = tl.load(inputs + t * 3 * HS + part * HS + 2 * i + 1, mask=inside, other=0.0)
            place = turned + t * 2 * HS + part * HS
            tl.store(place, (even * cos - odd * sin) * FACTOR, mask=inside)
            tl.store(place + S // 2, (odd * cos + even * sin) * FACTOR, mask=inside)
    tl.debug_barrier()  # the keys are read below by other threads
    keys = turned + HS
    values = inputs + 2 * HS + i
    heads = tl.program_id(1) * TH + tl.arange(0, TH)[None, :]
    sums = logs + offset * H + heads
    for first in range(begin, length, TQ):
        t = (first + tl.arange(0, TQ))[:, None, None]
        t2 = (first + tl.arange(0, TQ))[:, None]
        inside = (t < length) & mask
        q0, q1 = load_halves(turned + t * 2 * HS, inside, S)
        largest = tl.full((TQ, TH), float("-inf"), ACC)
        total = tl.zeros((TQ, TH), ACC)
        acc0 = tl.zeros((TQ, TH, SH), ACC)
        acc1 = tl.zeros((TQ, TH, SH), ACC)
        last = tl.minimum(first + TQ, length) if CAUSAL else length
        for j in range(0, last, 4):  # four keys share a rescaling of the sums
            s0 = score(q0, q1, keys, j, t2, length, mask, H, S, TH, SH, CAUSAL)
            s1 = score(q0, q1, keys, j + 1, t2, length, mask, H, S, TH, SH, CAUSAL)
            s2 = score(q0, q1, keys, j + 2, t2, length, mask, H, S, TH, SH, CAUSAL)
            s3 = score(q0, q1, keys, j + 3, t2, length, mask, H, S, TH, SH, CAUSAL)
            new = tl.maximum(largest, tl.maximum(tl.maximum(s0, s1), tl.maximum(s2, s3)))
            shrink = tl.exp2(largest - new)
            total *= shrink
            acc0 *= shrink[:, :, None]
            acc1 *= shrink[:, :, None]
            for key in tl.static_range(4):
                s = s0 if key == 0 else (s1 if key == 1 else (s2 if key == 2 else s3))
                w = tl.exp2(s - new)
                v0, v1 = load_step(values + tl.minimum(j + key, length - 1) * 3 * HS, mask, H, S, TH, SH)
                total += w
                acc0 += w[:, :, None] * v0
                acc1 += w[:, :, None] * v1
            largest = new
        tl.store(outputs + t * HS, acc0 / total[:, :, None], mask=inside)
        tl.store(outputs + t * HS + S // 2, acc1 / total[:, :, None], mask=inside)
        tl.store(sums + t2 * H, largest + tl.log2(total), mask=(t2 < length) & (heads < H))
    store_zeros(outputs - i, tl.zeros((TQ, TH, SH), ACC), length, stop, i, mask, TQ, S, HS)  # past the end


@triton.jit
def store_unrotated(
    place, d0, d1, cos, sin, mask,
    FACTOR: tl.constexpr, TQ: tl.constexpr, TH: tl.constexpr, SH: tl.constexpr,
):  # fmt: skip
    """Store the gradient of vectors at `place` from that of the rotated ones, even entries d0 and odd ones d1."""
    d = tl.join((d0 * cos + d1 * sin) * FACTOR, (d1 * cos - d0 * sin) * FACTOR)
    s = tl.arange(0, 2 * SH)[None, None, :]
    mask = tl.reshape(tl.join(mask, mask), (TQ, TH, 2 * SH))
    tl.store(place + s, tl.reshape(d, (TQ, TH, 2 * SH)), mask=mask)


@triton.jit(do_not_specialize=ANY_SIZE)
def attention_backward_kernel(
    grad, qkv, positions, lengths, table, y, rotated, logs, products, dqkv, L, count,
    FACTOR: tl.constexpr, H: tl.constexpr, S: tl.constexpr, TQ: tl.constexpr, TH: tl.constexpr, SH: tl.constexpr,
    CAUSAL: tl.constexpr, END: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill dqkv (N, L, 3, H, S): even programs the gradients of queries, the others those of keys and values."""
    row = (tl.program_id(0) // 2).to(tl.int64)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    h, i, mask = head_tile(H, S, TH, SH)
    heads = tl.program_id(1) * TH + tl.arange(0, TH)[None, :]
    begin, _, offset = query_range(row, length, L, END)
    HS: tl.constexpr = H * S
    dys = grad + offset * HS + h * S + i
    ys = y + offset * HS + h * S + i
    values = qkv + row * L * 3 * HS + 2 * HS + h * S + i
    queries = rotated + row * L * 2 * HS + h * S + i
    keys = queries + HS
    sums = logs + offset * H + heads
    gradients = dqkv + row * L * 3 * HS + h * S
    if tl.program_id(0) % 2 == 0:
        for first in range(begin, length, TQ):
            t = (first + tl.arange(0, TQ))[:, None, None]
            t2 = (first + tl.arange(0, TQ))[:, None]
            inside = (t < length) & mask
            # Before the vectors, because Triton then changes its layout to theirs here and not in every step.
            log = tl.load(sums + t2 * H, mask=(t2 < length) & (heads < H), other=0.0)
            q0, q1 = load_halves(queries + t * 2 * HS, inside, S)
            dy0, dy1 = load_halves(dys + t * HS, inside, S)
            y0, y1 = load_halves(ys + t * HS, inside, S)
            D = inner_product(dy0, dy1, y0, y1)
            dq0 = tl.zeros((TQ, TH, SH), ACC)
            dq1 = tl.zeros((TQ, TH, SH), ACC)
            last = tl.minimum(first + TQ, length) if CAUSAL else length
            for j in range(last):
                k0, k1 = load_step(keys + j * 2 * HS, mask, H, S, TH, SH)
                v0, v1 = load_step(values + j * 3 * HS, mask, H, S, TH, SH)
                w = tl.exp2(inner_product(q0, q1, k0, k1) - log)
                if CAUSAL:
                    w = tl.where(t2 >= j, w, 0.0)
                ds = (w * (inner_product(dy0, dy1, v0, v1) - D))[:, :, None]
                dq0 += ds * k0
                dq1 += ds * k1
            cos, sin = load_rotation(table, positions + row * L, t, t < length, i, mask, count, S)
            store_unrotated(gradients + t * 3 * HS, dq0, dq1, cos, sin, inside, FACTOR, TQ, TH, SH)
    else:
        dots = products + offset * H + heads
        for first in range(begin, length, TQ):
            t = (first + tl.arange(0, TQ))[:, None, None]
            t2 = (first + tl.arange(0, TQ))[:, None]
            dy0, dy1 = load_halves(dys + t * HS, (t < length) & mask, S)
            y0, y1 = load_halves(ys + t * HS, (t < length) & mask, S)
            tl.store(dots + t2 * H, inner_product(dy0, dy1, y0, y1), mask=(t2 < length) & (heads < H))
        tl.debug_barrier()  # they are read below by other threads
        for first in range(0, length, TQ):
            t = (first + tl.arange(0, TQ))[:, None, None]
            t2 = (first + tl.arange(0, TQ))[:, None]
            inside = (t < length) & mask
            k0, k1 = load_halves(keys + t * 2 * HS, inside, S)
            v0, v1 = load_halves(values + t * 3 * HS, inside, S)
            dk0 = tl.zeros((TQ, TH, SH), ACC)
            dk1 = tl.zeros((TQ, TH, SH), ACC)
            dv0 = tl.zeros((TQ, TH, SH), ACC)
            dv1 = tl.zeros((TQ, TH, SH), ACC)
            for j in range(tl.maximum(first, begin) if CAUSAL else begin, length):
                q0, q1 = load_step(queries + j * 2 * HS, mask, H, S, TH, SH)
                dy0, dy1 = load_step(dys + j * HS, mask, H, S, TH, SH)
                log = tl.load(sums + j * H, mask=heads < H, other=0.0)
                D = tl.load(dots + j * H, mask=heads < H, other=0.0)
                w = tl.exp2(inner_product(k0, k1, q0, q1) - log)
                if CAUSAL:
                    w = tl.where(t2 <= j, w, 0.0)
                ds = (w * (inner_product(v0, v1, dy0, dy1) - D))[:, :, None]
                w = w[:, :, None]
                dv0 += w * dy0
                dv1 += w * dy1
                dk0 += ds * q0
                dk1 += ds * q1
            place = gradients + t * 3 * HS + 2 * HS + i
            tl.store(place, dv0, mask=inside)
            tl.store(place + S // 2, dv1, mask=inside)
            cos, sin = load_rotation(table, positions + row * L, t, t < length, i, mask, count, S)
            store_unrotated(gradients + t * 3 * HS + HS, dk0, dk1, cos, sin, inside, FACTOR, TQ, TH, SH)
    zero = tl.zeros((TQ, TH, SH), ACC)
    if tl.program_id(0) % 2 == 0:
        store_zeros(gradients, zero, 0, begin, i, mask, TQ, S, 3 * HS)
        store_zeros(gradients, zero, length, L, i, mask, TQ, S, 3 * HS)
    else:
        store_zeros(gradients + HS, zero, length, L, i, mask, TQ, S, 3 * HS)
        store_zeros(gradients + 2 * HS, zero, length, L, i, mask, TQ, S, 3 * HS)


def kernel_constants(qkv: Tensor, causal: bool, end: bool) -> dict[str, Any]:
    """Return the constants of the kernels for qkv (N, L, 3, H, S)."""
    H, S = qkv.shape[3:]
    SH = next_power_of_two(S // 2)
    TH = max(1, min(ENTRIES // (2 * SH), next_power_of_two(H)))
    TQ = max(1, min(STEPS, STEPS * ENTRIES // (2 * TH * SH)))
    ACC = tl.float64 if qkv.dtype == torch.float64 else tl.float32
    return {"H": H, "S": S, "TQ": TQ, "TH": TH, "SH": SH, "CAUSAL": causal, "END": end, "ACC": ACC, "num_warps": WARPS}


def forward(
    qkv: Tensor, positions: Tensor, lengths: Tensor | None, causal: bool, end: bool, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y (N, T, H, S), rotated queries and keys (N, L, 2, H, S), logarithms of the sums (N, T, H).

    qkv (N, L, 3, H, S), positions (N, L), lengths (N,); T is L, or 1 with `end`.
    """
    N, L, _, H, S = qkv.shape
    T = 1 if end else L
    y, rotated, logs = qkv.new_empty(N, T, H, S), qkv.new_empty(N, L, 2, H, S), qkv.new_empty(N, T, H)
    if qkv.numel():
        constants = kernel_constants(qkv, causal, end)
        factor = S**-0.25 * math.log2(math.e) ** 0.5
        attention_forward_kernel[(N, triton.cdiv(H, constants["TH"]))](
            qkv,
            positions,
            lengths,
            rotation_table(qkv, count, S),
            y,
            rotated,
            logs,
            L,
            count,
            FACTOR=factor,
            **constants,
        )
    return y, rotated, logs


def backward(
    grad: Tensor, qkv: Tensor, positions: Tensor, lengths: Tensor | None,
    y: Tensor, rotated: Tensor, logs: Tensor, causal: bool, end: bool, count: int,
) -> tuple[Tensor]:  # fmt: skip
    """Return the gradient of qkv."""
    N, L, _, H, S = qkv.shape
    dqkv = torch.empty_like(qkv)
    if dqkv.numel():
        constants = kernel_constants(qkv, causal, end)
        factor = S**-0.25 * math.log(2) ** 0.5
        attention_backward_kernel[(2 * N, triton.cdiv(H, constants["TH"]))](
            grad, qkv, positions, lengths, rotation_table(qkv, count, S), y, rotated, logs,
            torch.empty_like(logs), dqkv, L, count, FACTOR=factor, **constants,
        )  # fmt: skip
    return (dqkv,)
