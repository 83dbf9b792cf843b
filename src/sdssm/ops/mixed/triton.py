# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Mixed matrices on NVIDIA GPUs: one kernel forward, two backward, each program a few columns of the matrices.

A column is normalised by itself, so a program with whole columns needs nothing from the others; only the gradient of
the weights is a sum over all of them, in two stages and a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import partial_sums
from sdssm.ops._triton.tile import over_columns
from sdssm.ops.autograd import absent
from sdssm.ops.padding import power_of_two

#: Matrices of the dictionary at a time.
TOGETHER = 16
#: Columns a program and entries of a matrix a warp, with few replicas and with many: the fastest measured on an H200.
FORWARD, BACKWARD = ((8, 128), (8, 128)), ((2, 64), (8, 64))
#: Programs wanted; as long as there are fewer, the symbols are shared out as well, in the gradient SYMBOLS to each.
PROGRAMS, SYMBOLS = 264, 4


@triton.jit
def column_tile(N: tl.constexpr, NP: tl.constexpr, TJ: tl.constexpr):
    """The places in a matrix of TJ whole columns, flat (so that a thread holds the same ones of every matrix)."""
    entry = tl.arange(0, NP * TJ)
    row = entry // TJ
    column = tl.program_id(0) * TJ + entry % TJ
    return row * N + column, (row < N) & (column < N)


@triton.jit
def forward_kernel(
    dictionary, weights, p, matrices, norms, V, share,
    N: tl.constexpr, K: tl.constexpr, NP: tl.constexpr, TJ: tl.constexpr, KB: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """A = M / norms for `share` symbols, M = sum_k weights[k] dictionary_k, norms_j = (sum_i |M_ij|^p)^(1/p)."""
    replica = tl.program_id(2).to(tl.int64)
    place, here = column_tile(N, NP, TJ)
    j = tl.program_id(0) * TJ + tl.arange(0, TJ)
    k = tl.arange(0, KB)
    offset = (replica * K + k[:, None]) * N * N + place[None, :]
    if K <= KB:  # one read serves all symbols
        part = tl.load(dictionary + offset, mask=(k < K)[:, None] & here[None, :], other=0.0)
    first = tl.program_id(1) * share
    for v in range(first, tl.minimum(first + share, V)):
        symbol = replica * V + v
        mixed = tl.zeros((NP * TJ,), ACC)
        for begin in tl.static_range(0, K, KB):
            w = tl.load(weights + symbol * K + begin + k, mask=begin + k < K, other=0.0)
            if K > KB:
                inside = (begin + k < K)[:, None] & here[None, :]
                part = tl.load(dictionary + offset + begin * N * N, mask=inside, other=0.0)
            mixed += tl.sum(w[:, None] * part, axis=0)
        if p is not None:
            power = tl.load(p + replica)
            columns = tl.reshape(mixed, (NP, TJ))
            size = tl.abs(columns)
            if power == 1.0:
                rho = tl.sum(size, axis=0)
            else:  # sizes relative to the column's largest: no power overflows
                largest = tl.max(size, axis=0)
                ratio = over_columns(size, tl.where(largest > 0.0, largest, 1.0)[None, :], ACC)
                if power == 2.0:
                    rho = largest * tl.sqrt(tl.sum(ratio * ratio, axis=0))
                else:
                    total = tl.sum(tl.where(ratio > 0.0, tl.exp2(power * tl.log2(ratio)), 0.0), axis=0)
                    rho = largest * tl.where(total > 0.0, tl.exp2(tl.log2(total) / power), 0.0)
            tl.store(norms + symbol * N + j, rho, mask=j < N)
            mixed = tl.reshape(columns / rho[None, :], (NP * TJ,))
        tl.store(matrices + symbol * N * N + place, mixed, mask=here)


@triton.jit
def backward_kernel(
    grad, dictionary, weights, p, matrices, norms, ddictionary, dweights, V, share, groups,
    N: tl.constexpr, K: tl.constexpr, NP: tl.constexpr, TJ: tl.constexpr, KB: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """For KB matrices, `share` symbols and TJ columns: ddictionary_k = sum_v weights[v, k] dM_v, <dictionary_k, dM_v>.

    With s_j = sum_l dA_lj A_lj: dM_ij = (dA_ij - s_j sign(A_ij) |A_ij|^(p-1)) / norms_j. ddictionary is (groups, R, K,
    N, N), to be summed over the groups of symbols, dweights (tiles of columns, R, V, K), to be summed over the tiles.
    """
    replica = tl.program_id(2).to(tl.int64)
    replicas = tl.num_programs(2)
    group = tl.program_id(1) % groups
    place, here = column_tile(N, NP, TJ)
    j = tl.program_id(0) * TJ + tl.arange(0, TJ)
    k = (tl.program_id(1) // groups) * KB + tl.arange(0, KB)
    inside = (k < K)[:, None] & here[None, :]
    part = tl.load(dictionary + (replica * K + k[:, None]) * N * N + place[None, :], mask=inside, other=0.0)
    acc = tl.zeros((KB, NP * TJ), ACC)
    for v in range(group * share, tl.minimum(group * share + share, V)):
        symbol = replica * V + v
        w = tl.load(weights + symbol * K + k, mask=k < K, other=0.0)
        dM = tl.load(grad + symbol * N * N + place, mask=here, other=0.0)
        if p is not None:
            a = tl.reshape(tl.load(matrices + symbol * N * N + place, mask=here, other=0.0), (NP, TJ))
            rho = tl.load(norms + symbol * N + j, mask=j < N, other=1.0)
            power = tl.load(p + replica)
            columns = tl.reshape(dM, (NP, TJ))
            along = tl.sum(columns * a, axis=0)
            size = tl.abs(a)
            slope = tl.where(size > 0.0, tl.exp2((power - 1.0) * tl.log2(tl.where(size > 0.0, size, 1.0))), 0.0)
            slope = tl.where(a < 0.0, -slope, slope)
            dM = tl.reshape((columns - along[None, :] * slope) / rho[None, :], (NP * TJ,))
        acc += w[:, None] * dM[None, :]
        products = tl.sum(part * dM[None, :], axis=1)
        tl.store(dweights + ((tl.program_id(0) * replicas + replica) * V + v) * K + k, products, mask=k < K)
    to = ddictionary + ((group * replicas + replica) * K + k[:, None]) * N * N
    tl.store(to + place[None, :], acc, mask=inside)


def constants(
    R: int, N: int, K: int, dtype: torch.dtype, shapes: tuple[tuple[int, int], tuple[int, int]]
) -> dict[str, Any]:
    """Sizes of the tiles for R replicas; float64 takes half of everything."""
    padded = power_of_two(N)
    columns, each = shapes[R * padded >= PROGRAMS * 8]
    columns = min(columns, max(2, columns * 64 // padded))
    together = min(power_of_two(K), TOGETHER if dtype == torch.float32 else TOGETHER // 2)
    return {
        "N": N,
        "K": K,
        "NP": padded,
        "TJ": columns,
        "KB": together,
        "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": min(8, max(1, padded * columns // each)),
    }


def forward(dictionary: Tensor, weights: Tensor, p: Tensor | None) -> tuple[Tensor, Tensor]:
    """dictionary (R, K, N, N), weights (R, V, K), p (R,) -> A (R, V, N, N), norms (R, V, N), empty without p."""
    R, K, N, _ = dictionary.shape
    V = weights.shape[1]
    sizes = constants(R, N, K, dictionary.dtype, FORWARD)
    tiles = triton.cdiv(N, sizes["TJ"])
    share = V if R * tiles >= PROGRAMS else 1
    matrices = dictionary.new_empty(R, V, N, N)
    norms = absent(matrices) if p is None else dictionary.new_empty(R, V, N)
    if matrices.numel():
        forward_kernel[(tiles, triton.cdiv(V, share), R)](dictionary, weights, p, matrices, norms, V, share, **sizes)
    return matrices, norms


def backward(
    grad: Tensor, dictionary: Tensor, weights: Tensor, p: Tensor | None, matrices: Tensor, norms: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of dictionary and weights."""
    R, K, N, _ = dictionary.shape
    V = weights.shape[1]
    if not matrices.numel():
        return torch.zeros_like(dictionary), torch.zeros_like(weights)
    sizes = constants(R, N, K, dictionary.dtype, BACKWARD)
    tiles, stacks = triton.cdiv(N, sizes["TJ"]), triton.cdiv(K, sizes["KB"])
    groups = max(1, min(triton.cdiv(V, SYMBOLS), PROGRAMS // (tiles * stacks * R)))
    share = triton.cdiv(V, groups)
    groups = triton.cdiv(V, share)
    ddictionary = dictionary.new_empty(groups, R, K * N * N)
    dweights = weights.new_empty(tiles, R, V * K)
    backward_kernel[(tiles, stacks * groups, R)](
        grad, dictionary, weights, p, matrices, norms, ddictionary, dweights, V, share, groups, **sizes
    )
    whole = ddictionary[0] if groups == 1 else partial_sums(ddictionary, dictionary.dtype)[0]
    return whole.view(dictionary.shape), partial_sums(dweights, weights.dtype)[0].view(weights.shape)
