# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Attention with rotary positions on NVIDIA GPUs: one kernel forward and one backward.

A program has one head of a row (a sequence): one warp for heads of up to 16 entries, up to four for larger ones. It
takes tiles of queries and runs over blocks of keys, with the running maximum and sum of the softmax. With heads of 8
entries up to 64 keys are read once for all queries, in two blocks if there are no more than 48. Products run on tensor
cores (see `vectors`).

The forward kernel also stores rotated queries and keys, for the gradient, and of the softmax the logarithm of the sum.
Backward, half of the programs run over keys for tiles of queries, the other half over queries for tiles of keys. With
D = <dy, y> the gradient of a score is w (<dy, v> - D). Steps past the length of a row take no time. Scores are in
units of log 2.

Constants of the kernels: H heads of size S, padded to SP, TILE steps of a tile and BLOCK steps of a block, ONE whether
a row has no more steps than BLOCK and REST together, FACTOR that of the rotated vectors or of their gradients, ACC the
dtype of sums.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.source import has_tensor_cores
from sdssm.ops._triton.tensor_cores import split_nearest
from sdssm.ops.attention.rotation import rotation_table
from sdssm.ops.attention.vectors import (
    inner_products,
    load_rotation,
    load_vectors,
    rotate,
    store_vectors,
    store_zeros,
    weighted_sums,
)
from sdssm.ops.padding import next_power_of_two

#: Steps of a tile and of a block forward, and the same backward; loads on their way at once.
FORWARD, BACKWARD, STAGES = (16, 64), (16, 16), 1
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["L", "count"]


@triton.jit
def query_range(row, length, L, END: tl.constexpr):
    """Return the first query, the end of the outputs, and the index of the first output minus the first query.

    With END the only query is the last one of a row.
    """
    begin = tl.maximum(length - 1, 0) if END else 0
    stop = begin + 1 if END else L
    return begin, stop, row - begin if END else row * L


@triton.jit
def load_keys(
    inputs, turned, positions, table, t, length, count, stored_end,
    FACTOR: tl.constexpr, HS: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, NVIDIA: tl.constexpr,
):  # fmt: skip
    """Return rotated keys and values of steps t, both split, and store the keys of steps before stored_end."""
    cos, sin = load_rotation(table, positions, t, length, count, S, SP)
    keys = rotate(load_vectors(inputs + HS, t, length, 3 * HS, S, SP), cos * FACTOR, sin * FACTOR)
    store_vectors(turned + HS, keys, t, 0, stored_end, 2 * HS, S, SP)
    k, k_rest = split_nearest(keys, NVIDIA)
    v, v_rest = split_nearest(load_vectors(inputs + 2 * HS, t, length, 3 * HS, S, SP), NVIDIA)
    return k, k_rest, v, v_rest


@triton.jit
def attend_block(
    largest, total, acc, q, q_rest, k, k_rest, v, v_rest, t, j, length,
    CAUSAL: tl.constexpr, NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add a block of keys j to maximum and sum of the softmax (TILE,) and to the weighted sum of values (TILE, SP)."""
    scores = inner_products(q, q_rest, k, k_rest, NVIDIA, ACC)
    scores += tl.where(j < length, 0.0, float("-inf"))[None, :]
    if CAUSAL:
        scores = tl.where(t[:, None] >= j[None, :], scores, float("-inf"))
    new = tl.maximum(largest, tl.max(scores, axis=1))
    weights = tl.exp2(scores - new[:, None])
    shrink = tl.exp2(largest - new)
    acc = acc * shrink[:, None] + weighted_sums(weights, v, v_rest, NVIDIA, ACC)
    return new, total * shrink + tl.sum(weights, axis=1), acc


@triton.jit(do_not_specialize=ANY_SIZE)
def attention_forward_kernel(
    qkv, positions, lengths, table, y, rotated, logs, L, count,
    FACTOR: tl.constexpr, H: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    REST: tl.constexpr, ONE: tl.constexpr, CAUSAL: tl.constexpr, END: tl.constexpr, NVIDIA: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Fill y (N, T, H, S), rotated queries and keys (N, L, 2, H, S), and the logarithms of the sums (N, T, H)."""
    row = (tl.program_id(0) // H).to(tl.int64)
    head = tl.program_id(0) % H
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    begin, stop, offset = query_range(row, length, L, END)
    HS: tl.constexpr = H * S
    inputs = qkv + row * L * 3 * HS + head * S
    outputs = y + offset * HS + head * S
    turned = rotated + row * L * 2 * HS + head * S
    positions += row * L
    block = tl.arange(0, BLOCK)
    if ONE:
        k, k_rest, v, v_rest = load_keys(
            inputs, turned, positions, table, block, length, count, length, FACTOR, HS, S, SP, NVIDIA
        )
        if REST > 0:
            block2 = BLOCK + tl.arange(0, REST)
            k2, k2_rest, v2, v2_rest = load_keys(
                inputs, turned, positions, table, block2, length, count, length, FACTOR, HS, S, SP, NVIDIA
            )
    for first in range(begin, length, TILE):
        t = first + tl.arange(0, TILE)
        cos, sin = load_rotation(table, positions, t, length, count, S, SP)
        queries = rotate(load_vectors(inputs, t, length, 3 * HS, S, SP), cos * FACTOR, sin * FACTOR)
        store_vectors(turned, queries, t, 0, length, 2 * HS, S, SP)
        q, q_rest = split_nearest(queries, NVIDIA)
        largest = tl.full((TILE,), float("-inf"), ACC)
        total = tl.zeros((TILE,), ACC)
        acc = tl.zeros((TILE, SP), ACC)
        if ONE:
            largest, total, acc = attend_block(
                largest, total, acc, q, q_rest, k, k_rest, v, v_rest, t, block, length, CAUSAL, NVIDIA, ACC
            )
            if REST > 0:
                largest, total, acc = attend_block(
                    largest, total, acc, q, q_rest, k2, k2_rest, v2, v2_rest, t, block2, length, CAUSAL, NVIDIA, ACC
                )
        else:
            last = tl.minimum(first + TILE, length) if CAUSAL else length
            stored_end = last if CAUSAL else tl.where(first == begin, length, 0)
            for start in range(0, last, BLOCK):
                k, k_rest, v, v_rest = load_keys(
                    inputs, turned, positions, table, start + block, length, count, stored_end,
                    FACTOR, HS, S, SP, NVIDIA,
                )  # fmt: skip
                largest, total, acc = attend_block(
                    largest, total, acc, q, q_rest, k, k_rest, v, v_rest, t, start + block, length, CAUSAL, NVIDIA, ACC
                )
        store_vectors(outputs, acc * (1.0 / total)[:, None], t, 0, length, HS, S, SP)
        tl.store(logs + (offset + t) * H + head, largest + tl.log2(total), mask=t < length)
    store_zeros(outputs, length, stop, TILE, HS, S, SP, ACC)


@triton.jit
def load_queries(
    queries, dys, ys, sums, t, length,
    H: tl.constexpr, HS: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, NVIDIA: tl.constexpr,
):  # fmt: skip
    """Return queries and gradients of outputs of steps t, both split, the logarithms, and D."""
    q, q_rest = split_nearest(load_vectors(queries, t, length, 2 * HS, S, SP), NVIDIA)
    dy = load_vectors(dys, t, length, HS, S, SP)
    D = tl.sum(dy * load_vectors(ys, t, length, HS, S, SP), axis=1)
    dy, dy_rest = split_nearest(dy, NVIDIA)
    return q, q_rest, dy, dy_rest, tl.load(sums + t * H, mask=t < length, other=0.0), D


@triton.jit
def score_gradients(
    q, q_rest, dy, dy_rest, log, D, k, k_rest, v, v_rest, seen, NVIDIA: tl.constexpr, ACC: tl.constexpr
):
    """Return weights and gradients of scores, (M, N), zeros where not seen; queries and keys may be exchanged."""
    weights = tl.exp2(inner_products(q, q_rest, k, k_rest, NVIDIA, ACC) - log)
    if seen is not None:
        weights = tl.where(seen, weights, 0.0)
    return weights, weights * (inner_products(dy, dy_rest, v, v_rest, NVIDIA, ACC) - D)


@triton.jit(do_not_specialize=ANY_SIZE)
def attention_backward_kernel(
    grad, qkv, positions, lengths, table, y, rotated, logs, dqkv, L, count,
    FACTOR: tl.constexpr, H: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, END: tl.constexpr, NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill dqkv (N, L, 3, H, S): even programs the gradients of queries, the others those of keys and values."""
    row = (tl.program_id(0) // 2 // H).to(tl.int64)
    head = tl.program_id(0) // 2 % H
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    begin, _, offset = query_range(row, length, L, END)
    HS: tl.constexpr = H * S
    dys = grad + offset * HS + head * S
    ys = y + offset * HS + head * S
    values = qkv + row * L * 3 * HS + 2 * HS + head * S
    queries = rotated + row * L * 2 * HS + head * S
    keys = queries + HS
    sums = logs + offset * H + head
    gradients = dqkv + row * L * 3 * HS + head * S
    positions += row * L
    block = tl.arange(0, BLOCK)
    if tl.program_id(0) % 2 == 0:
        for first in range(begin, length, TILE):
            t = first + tl.arange(0, TILE)
            q, q_rest, dy, dy_rest, log, D = load_queries(queries, dys, ys, sums, t, length, H, HS, S, SP, NVIDIA)
            dq = tl.zeros((TILE, SP), ACC)
            last = tl.minimum(first + TILE, length) if CAUSAL else length
            for start in range(0, last, BLOCK):
                j = start + block
                k, k_rest = split_nearest(load_vectors(keys, j, length, 2 * HS, S, SP), NVIDIA)
                v, v_rest = split_nearest(load_vectors(values, j, length, 3 * HS, S, SP), NVIDIA)
                seen = (j < length)[None, :] & (t[:, None] >= j[None, :]) if CAUSAL else (j < length)[None, :]
                weights, ds = score_gradients(
                    q, q_rest, dy, dy_rest, log[:, None], D[:, None], k, k_rest, v, v_rest, seen, NVIDIA, ACC
                )
                dq += weighted_sums(ds, k, k_rest, NVIDIA, ACC)
            cos, sin = load_rotation(table, positions, t, length, count, S, SP)
            store_vectors(gradients, rotate(dq, cos * FACTOR, -sin * FACTOR), t, 0, length, 3 * HS, S, SP)
        store_zeros(gradients, 0, begin, TILE, 3 * HS, S, SP, ACC)
        store_zeros(gradients, length, L, TILE, 3 * HS, S, SP, ACC)
    else:
        for first in range(0, length, TILE):
            t = first + tl.arange(0, TILE)
            k, k_rest = split_nearest(load_vectors(keys, t, length, 2 * HS, S, SP), NVIDIA)
            v, v_rest = split_nearest(load_vectors(values, t, length, 3 * HS, S, SP), NVIDIA)
            dk = tl.zeros((TILE, SP), ACC)
            dv = tl.zeros((TILE, SP), ACC)
            for start in range(tl.maximum(first, begin) if CAUSAL else begin, length, BLOCK):
                j = start + block
                q, q_rest, dy, dy_rest, log, D = load_queries(queries, dys, ys, sums, j, length, H, HS, S, SP, NVIDIA)
                seen = t[:, None] <= j[None, :] if CAUSAL else None  # rows past the end are not stored
                weights, ds = score_gradients(
                    k, k_rest, v, v_rest, log[None, :], D[None, :], q, q_rest, dy, dy_rest, seen, NVIDIA, ACC
                )
                dv += weighted_sums(weights, dy, dy_rest, NVIDIA, ACC)
                dk += weighted_sums(ds, q, q_rest, NVIDIA, ACC)
            cos, sin = load_rotation(table, positions, t, length, count, S, SP)
            store_vectors(gradients + HS, rotate(dk, cos * FACTOR, -sin * FACTOR), t, 0, length, 3 * HS, S, SP)
            store_vectors(gradients + 2 * HS, dv, t, 0, length, 3 * HS, S, SP)
        store_zeros(gradients + HS, length, L, TILE, 3 * HS, S, SP, ACC)
        store_zeros(gradients + 2 * HS, length, L, TILE, 3 * HS, S, SP, ACC)


def kernel_constants(qkv: Tensor, causal: bool, end: bool, sides: tuple[int, int]) -> dict[str, Any]:
    """Return the constants of the kernels for qkv (N, L, 3, H, S)."""
    L, _, H, S = qkv.shape[1:]
    SP = max(8, next_power_of_two(S))
    TILE, BLOCK = sides[0], max(16, min(sides[1], next_power_of_two(L), 8 * sides[1] // SP))
    is_double = qkv.dtype == torch.float64
    return {
        "H": H, "S": S, "SP": SP, "TILE": TILE, "BLOCK": BLOCK, "CAUSAL": causal, "END": end,
        "NVIDIA": not is_double and has_tensor_cores(qkv), "ACC": tl.float64 if is_double else tl.float32,
        "num_warps": max(1, min(4, SP // 16)), "num_stages": STAGES,
    }  # fmt: skip


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
        constants = kernel_constants(qkv, causal, end, FORWARD)
        BLOCK, REST = constants["BLOCK"], 0
        if BLOCK >= 64 and L <= BLOCK * 3 // 4:
            BLOCK, REST = BLOCK // 2, BLOCK // 4
        constants |= {"BLOCK": BLOCK, "REST": REST, "ONE": BLOCK + REST >= L}
        attention_forward_kernel[(N * H,)](
            qkv, positions, lengths, rotation_table(qkv, count, S), y, rotated, logs, L, count,
            FACTOR=S**-0.25 * math.log2(math.e) ** 0.5, **constants,
        )  # fmt: skip
    return y, rotated, logs


def backward(
    grad: Tensor, qkv: Tensor, positions: Tensor, lengths: Tensor | None,
    y: Tensor, rotated: Tensor, logs: Tensor, causal: bool, end: bool, count: int,
) -> tuple[Tensor]:  # fmt: skip
    """Return the gradient of qkv."""
    N, L, _, H, S = qkv.shape
    dqkv = torch.empty_like(qkv)
    if dqkv.numel():
        constants = kernel_constants(qkv, causal, end, BACKWARD)
        attention_backward_kernel[(2 * N * H,)](
            grad, qkv, positions, lengths, rotation_table(qkv, count, S), y, rotated, logs, dqkv, L, count,
            FACTOR=S**-0.25 * math.log(2) ** 0.5, **constants,
        )  # fmt: skip
    return (dqkv,)
