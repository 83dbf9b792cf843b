# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Mixed matrices on NVIDIA GPUs: one kernel forward and two backward.

A program has a few complete columns of the matrices. They are normalised independently of the others; only the gradient
of the weights is a sum over all of them, in two stages and a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops._triton.tile import over_columns
from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.padding import next_power_of_two

#: Matrices of the dictionary that a program holds at a time.
MATRICES_AT_ONCE = 16
#: Columns per program and entries of a matrix per warp, for few replicas and for many: the fastest on an H200.
FORWARD, BACKWARD = ((8, 128), (8, 128)), ((2, 64), (8, 64))
#: Desired number of programs. If there are fewer, the symbols are split as well; in the gradient each has SYMBOLS.
PROGRAMS, SYMBOLS = 264, 4


@triton.jit
def column_tile(N: tl.constexpr, NP: tl.constexpr, TJ: tl.constexpr):
    """Return the offsets of TJ columns in a matrix, and their mask.

    Both are flat, so that a thread has the same entries of every matrix.
    """
    entry = tl.arange(0, NP * TJ)
    row = entry // TJ
    column = tl.program_id(0) * TJ + entry % TJ
    return row * N + column, (row < N) & (column < N)


@triton.jit
def logits_of(selection, bias, replica, v, k, V, K: tl.constexpr):
    """Load the logits selection[k, v] + bias[k] of some matrices for one symbol; -inf for k past the last one."""
    logits = tl.load(selection + (replica * K + k) * V + v, mask=k < K, other=float("-inf"))
    return logits + tl.load(bias + replica * K + k, mask=k < K, other=0.0)


@triton.jit
def mixed_forward_kernel(
    dictionary, weights, bias, p, matrices, norms, mixing, V, share,
    N: tl.constexpr, K: tl.constexpr, NP: tl.constexpr, TJ: tl.constexpr, KB: tl.constexpr, KP: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Compute A = M / norms for `share` symbols and TJ columns.

    M = sum_k weights[k] dictionary_k, norms_j = (sum_i |M_ij|^p)^(1/p). With `mixing` the weights are computed first,
    the softmax of `logits_of`, and stored there.
    """
    replica = tl.program_id(2).to(tl.int64)
    place, in_range = column_tile(N, NP, TJ)
    j = tl.program_id(0) * TJ + tl.arange(0, TJ)
    k = tl.arange(0, KB)
    offset = (replica * K + k[:, None]) * N * N + place[None, :]
    if K <= KB:  # the dictionary is read once for all symbols
        part = tl.load(dictionary + offset, mask=(k < K)[:, None] & in_range[None, :], other=0.0)
    first = tl.program_id(1) * share
    for v in range(first, tl.minimum(first + share, V)):
        symbol = replica * V + v
        mixed = tl.zeros((NP * TJ,), ACC)
        if mixing is not None:
            every_k = tl.arange(0, KP)
            logits = logits_of(weights, bias, replica, v, every_k, V, K)
            top = tl.max(logits, axis=0)
            powers = tl.exp(logits - top)
            softmax_total = tl.sum(powers, axis=0)
            is_first = tl.program_id(0) == 0
            tl.store(mixing + symbol * K + every_k, powers / softmax_total, mask=(every_k < K) & is_first)
        for first_k in tl.static_range(0, K, KB):
            if mixing is None:
                w = tl.load(weights + symbol * K + first_k + k, mask=first_k + k < K, other=0.0)
            else:
                w = tl.exp(logits_of(weights, bias, replica, v, first_k + k, V, K) - top) / softmax_total
            if K > KB:
                inside = (first_k + k < K)[:, None] & in_range[None, :]
                part = tl.load(dictionary + offset + first_k * N * N, mask=inside, other=0.0)
            mixed += tl.sum(w[:, None] * part, axis=0)
        if p is not None:
            power = tl.load(p + replica)
            columns = tl.reshape(mixed, (NP, TJ))
            size = tl.abs(columns)
            if power == 1.0:
                rho = tl.sum(size, axis=0)
            else:  # absolute values relative to the largest of the column, so that no power overflows
                largest = tl.max(size, axis=0)
                ratio = over_columns(size, tl.where(largest > 0.0, largest, 1.0)[None, :], ACC)
                if power == 2.0:
                    rho = largest * tl.sqrt(tl.sum(ratio * ratio, axis=0))
                else:
                    total = tl.sum(tl.where(ratio > 0.0, tl.exp2(power * tl.log2(ratio)), 0.0), axis=0)
                    rho = largest * tl.where(total > 0.0, tl.exp2(tl.log2(total) / power), 0.0)
            tl.store(norms + symbol * N + j, rho, mask=j < N)
            mixed = tl.reshape(columns / rho[None, :], (NP * TJ,))
        tl.store(matrices + symbol * N * N + place, mixed, mask=in_range)


@triton.jit
def mixed_backward_kernel(
    grad, dictionary, weights, p, matrices, norms, ddictionary, dweights, V, share, groups,
    N: tl.constexpr, K: tl.constexpr, NP: tl.constexpr, TJ: tl.constexpr, KB: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute ddictionary_k = sum_v weights[v, k] dM_v and dweights[v, k] = <dictionary_k, dM_v>.

    Each program has KB matrices, `share` symbols and TJ columns. With s_j = sum_l dA_lj A_lj,
    dM_ij = (dA_ij - s_j sign(A_ij) |A_ij|^(p-1)) / norms_j. ddictionary (groups, R, K, N, N) is to be summed over the
    groups of symbols, dweights (tiles of columns, R, V, K) over the tiles.
    """
    replica = tl.program_id(2).to(tl.int64)
    replicas = tl.num_programs(2)
    group = tl.program_id(1) % groups
    place, in_range = column_tile(N, NP, TJ)
    j = tl.program_id(0) * TJ + tl.arange(0, TJ)
    k = (tl.program_id(1) // groups) * KB + tl.arange(0, KB)
    inside = (k < K)[:, None] & in_range[None, :]
    part = tl.load(dictionary + (replica * K + k[:, None]) * N * N + place[None, :], mask=inside, other=0.0)
    acc = tl.zeros((KB, NP * TJ), ACC)
    for v in range(group * share, tl.minimum(group * share + share, V)):
        symbol = replica * V + v
        w = tl.load(weights + symbol * K + k, mask=k < K, other=0.0)
        dM = tl.load(grad + symbol * N * N + place, mask=in_range, other=0.0)
        if p is not None:
            a = tl.reshape(tl.load(matrices + symbol * N * N + place, mask=in_range, other=0.0), (NP, TJ))
            rho = tl.load(norms + symbol * N + j, mask=j < N, other=1.0)
            power = tl.load(p + replica)
            columns = tl.reshape(dM, (NP, TJ))
            inner = tl.sum(columns * a, axis=0)
            size = tl.abs(a)
            slope = tl.where(size > 0.0, tl.exp2((power - 1.0) * tl.log2(tl.where(size > 0.0, size, 1.0))), 0.0)
            slope = tl.where(a < 0.0, -slope, slope)
            dM = tl.reshape((columns - inner[None, :] * slope) / rho[None, :], (NP * TJ,))
        acc += w[:, None] * dM[None, :]
        products = tl.sum(part * dM[None, :], axis=1)
        tl.store(dweights + ((tl.program_id(0) * replicas + replica) * V + v) * K + k, products, mask=k < K)
    part_start = ddictionary + ((group * replicas + replica) * K + k[:, None]) * N * N
    tl.store(part_start + place[None, :], acc, mask=inside)


def constants(
    R: int, N: int, K: int, dtype: torch.dtype, shapes: tuple[tuple[int, int], tuple[int, int]]
) -> dict[str, Any]:
    """Return the sizes of the tiles for R replicas, and the number of warps; float64 has half the size."""
    padded = next_power_of_two(N)
    columns, entries_per_warp = shapes[R * padded >= PROGRAMS * 8]
    columns = min(columns, max(2, columns * 64 // padded))
    matrices = min(next_power_of_two(K), MATRICES_AT_ONCE if dtype == torch.float32 else MATRICES_AT_ONCE // 2)
    return {
        "N": N,
        "K": K,
        "NP": padded,
        "TJ": columns,
        "KB": matrices,
        "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": min(8, max(1, padded * columns // entries_per_warp)),
    }


def forward(
    dictionary: Tensor, weights: Tensor, p: Tensor | None, bias: Tensor | None = None, mixing: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return A (R, V, N, N) and norms (R, V, N), empty without p.

    dictionary (R, K, N, N), weights (R, V, K), p (R,). With `mixing` (R, V, K), which is filled with the softmax of the
    weights, these are (R, K, V) and have a bias (R, K).
    """
    R, K, N, _ = dictionary.shape
    V = weights.shape[1 if mixing is None else 2]
    sizes = constants(R, N, K, dictionary.dtype, FORWARD)
    tiles = triton.cdiv(N, sizes["TJ"])
    share = V if R * tiles >= PROGRAMS else 1
    matrices = dictionary.new_empty(R, V, N, N)
    norms = empty_placeholder(matrices) if p is None else dictionary.new_empty(R, V, N)
    if matrices.numel():
        mixed_forward_kernel[(tiles, triton.cdiv(V, share), R)](
            dictionary, weights, bias, p, matrices, norms, mixing, V, share, KP=next_power_of_two(K), **sizes
        )
    return matrices, norms


def backward(
    grad: Tensor, dictionary: Tensor, weights: Tensor, p: Tensor | None, matrices: Tensor, norms: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of dictionary and weights."""
    grad_dictionary, parts = gradient_parts(grad, dictionary, weights, p, matrices, norms)
    return grad_dictionary, sum_parts(parts, weights.dtype)[0].view(weights.shape)


def gradient_parts(
    grad: Tensor, dictionary: Tensor, weights: Tensor, p: Tensor | None, matrices: Tensor, norms: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the dictionary, and parts (count, R, V * K) whose sum is that of the weights (R, V, K)."""
    R, K, N, _ = dictionary.shape
    V = weights.shape[1]
    if not matrices.numel():
        return torch.zeros_like(dictionary), weights.new_zeros(1, R, V * K)
    sizes = constants(R, N, K, dictionary.dtype, BACKWARD)
    tiles, stacks = triton.cdiv(N, sizes["TJ"]), triton.cdiv(K, sizes["KB"])
    groups = max(1, min(triton.cdiv(V, SYMBOLS), PROGRAMS // (tiles * stacks * R)))
    share = triton.cdiv(V, groups)
    groups = triton.cdiv(V, share)
    ddictionary = dictionary.new_empty(groups, R, K * N * N)
    dweights = weights.new_empty(tiles, R, V * K)
    mixed_backward_kernel[(tiles, stacks * groups, R)](
        grad, dictionary, weights, p, matrices, norms, ddictionary, dweights, V, share, groups, **sizes
    )
    total = ddictionary[0] if groups == 1 else sum_parts(ddictionary, dictionary.dtype)[0]
    return total.view(dictionary.shape), dweights
