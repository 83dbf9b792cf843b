# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Column-mixture scan on NVIDIA GPUs: where every column's 1 stands, then the column-one-hot scan.

The mixtures M_t, N x N numbers a place, are never in memory. A program takes some places and goes through the columns:
those of M for all its places are one tile, made from the dictionary, of which forward only the largest entries are
kept. Backward makes them again and has their softmax s; with a the adjoint of x_t and z = D_t x_{t-1}, column j gets

    dM_j = s (G - sum(s G)),   G = Re(conj(a) z_j),

from which the program adds up its part of the gradients at once.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import partial_sums
from sdssm.ops.column_one_hot.gradients import of_diagonal
from sdssm.ops.column_one_hot.triton import adjoints_of, pairs, states_of
from sdssm.ops.layout import rows_as_replicas
from sdssm.ops.padding import power_of_two
from sdssm.ops.transitions import previous

#: Entries of a program's tiles in float32, places x N and matrices x N, and the most places and matrices in one.
TILE, MATRICES, MOST_PLACES, MOST_MATRICES = 4096, 2048, 64, 32
#: The least size of a tile that tensor cores take.
LEAST = 16
#: Each program has a part of the dictionary's gradient in memory: the most numbers of all those of a replica, where
#: there are programs enough for a GPU. It may not depend on the replicas: the order of a sum follows from it.
MOST_PARTS, FEWEST_PROGRAMS = 1 << 24, 32


@triton.jit
def weights_of(weights, t, here, first, K: tl.constexpr, KB: tl.constexpr):
    """Those of KB matrices from the first on, at some places: (PLACES, KB)."""
    k = first + tl.arange(0, KB)
    return tl.load(weights + t[:, None] * K + k[None, :], mask=here[:, None] & (k < K)[None, :], other=0.0)


@triton.jit
def column_of(columns, j, first, K: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr):
    """Column j of KB matrices from the first on: (KB, NP)."""
    k = first + tl.arange(0, KB)
    i = tl.arange(0, NP)
    return tl.load(columns + (k[:, None] * N + j) * N + i[None, :], mask=(k < K)[:, None] & (i < N)[None, :], other=0.0)


@triton.jit
def mixed_column(
    columns, weights, w, t, here, j, K: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Column j of the mixtures at some places, (PLACES, NP), beyond N smaller than all others; w: the first weights."""
    mixed = tl.dot(w, column_of(columns, j, 0, K, N, NP, KB), input_precision=PRECISION, out_dtype=ACC)
    for first in range(KB, K, KB):
        more = weights_of(weights, t, here, first, K, KB)
        mixed += tl.dot(more, column_of(columns, j, first, K, N, NP, KB), input_precision=PRECISION, out_dtype=ACC)
    return tl.where((tl.arange(0, NP) < N)[None, :], mixed, float("-inf"))


@triton.jit(do_not_specialize=["M"])
def places_kernel(
    columns, weights, to, M, K: tl.constexpr, N: tl.constexpr, PLACES: tl.constexpr, NP: tl.constexpr,
    KB: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The row of each column's largest entry, for PLACES of the M places of a replica."""
    replica = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    here = t < M
    t += replica * M
    columns += replica * K * N * N
    w = weights_of(weights, t, here, 0, K, KB)
    for j in range(N):
        mixed = mixed_column(columns, weights, w, t, here, j, K, N, NP, KB, PRECISION, ACC)
        # Where a model has diverged nothing is the largest: it must not point beyond N all the same.
        best = tl.minimum(tl.argmax(mixed, axis=1), N - 1)
        tl.store(to + t * N + j, best.to(tl.int32), mask=here)


@triton.jit(do_not_specialize=["M", "share"])
def gradients_kernel(
    columns, weights, adjoints, z, dcolumns, dweights, M, share, K: tl.constexpr, N: tl.constexpr,
    PLACES: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """For `share` tiles of PLACES of the M places of a replica, and KB matrices: dweights, and dcolumns, (programs, R,
    K, N, N), to be summed over the programs."""
    replica = tl.program_id(1).to(tl.int64)
    own = tl.program_id(2) * KB
    i = tl.arange(0, NP)
    k = own + tl.arange(0, KB)
    there = (k < K)[:, None] & (i < N)[None, :]
    columns += replica * K * N * N
    dcolumns += (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + replica) * K * N * N
    first = tl.program_id(0) * share
    for tile in range(first, tl.minimum(first + share, tl.cdiv(M, PLACES))):
        t = tl.arange(0, PLACES).to(tl.int64) + tile * PLACES
        here = t < M
        t += replica * M
        inside = here[:, None] & (i < N)[None, :]
        at = 2 * (t[:, None] * N + i[None, :])
        ar = tl.load(adjoints + at, mask=inside, other=0.0)
        ai = tl.load(adjoints + at + 1, mask=inside, other=0.0)
        w = weights_of(weights, t, here, 0, K, KB)
        w_own = weights_of(weights, t, here, own, K, KB)
        dw = tl.zeros((PLACES, KB), ACC)
        for j in range(N):
            mixed = mixed_column(columns, weights, w, t, here, j, K, N, NP, KB, PRECISION, ACC)
            s = tl.exp(mixed - tl.max(mixed, axis=1)[:, None])
            s = s / tl.sum(s, axis=1)[:, None]
            zr = tl.load(z + 2 * (t * N + j), mask=here, other=0.0)
            zi = tl.load(z + 2 * (t * N + j) + 1, mask=here, other=0.0)
            G = ar * zr[:, None] + ai * zi[:, None]
            dM = s * (G - tl.sum(s * G, axis=1)[:, None])
            m = column_of(columns, j, own, K, N, NP, KB)
            dw += tl.dot(dM, tl.trans(m), input_precision=PRECISION, out_dtype=ACC)
            part = tl.dot(tl.trans(w_own), dM, input_precision=PRECISION, out_dtype=ACC)
            to = dcolumns + (k[:, None] * N + j) * N + i[None, :]
            if tile > first:  # nobody else writes there
                part += tl.load(to, mask=there, other=0.0)
            tl.store(to, part, mask=there)
        tl.store(dweights + t[:, None] * K + k[None, :], dw, mask=here[:, None] & (k < K)[None, :])


def constants(K: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Sizes of the tiles; float64 takes half of everything. Float32 is multiplied three times with its parts."""
    padded = max(LEAST, power_of_two(N))
    wide = dtype == torch.float64
    room = padded * (2 if wide else 1)
    return {
        "K": K,
        "N": N,
        "PLACES": max(LEAST, min(MOST_PLACES, TILE // room)),
        "NP": padded,
        "KB": max(LEAST, min(MOST_MATRICES, MATRICES // room, power_of_two(K))),
        "PRECISION": "ieee" if wide else "tf32x3",
        "ACC": tl.float64 if wide else tl.float32,
        "num_warps": 4 if padded <= 64 else 8,
    }


def forward(
    dictionary: Tensor, weights: Tensor, D: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """States (R, B, L, N), final (R, B, N) and the row of each column's 1, (R, B, L, N).

    dictionary (R, K, N, N), weights (R, B, L, K), D and b (R, B, L, N), x0 (R, B, N), lengths (R, B).
    """
    R, B, L, N = D.shape
    to = torch.empty(D.shape, dtype=torch.int32, device=D.device)
    if to.numel():
        sizes = constants(dictionary.shape[1], N, dictionary.dtype)
        grid = triton.cdiv(B * L, sizes["PLACES"]), R
        places_kernel[grid](dictionary.mT.contiguous(), weights, to, B * L, **sizes)
    states, final = states_of(to.flatten(0, 1), D.flatten(0, 1), None, *rows_as_replicas(b, x0, lengths))
    return states.view(D.shape), final.view(R, B, N), to


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, dictionary: Tensor, weights: Tensor, D: Tensor,
    b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, states: Tensor, final: Tensor, to: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of dictionary, weights, D, b and x0."""
    R, B, L, N = D.shape
    if not D.numel():
        return *(torch.zeros_like(one) for one in (dictionary, weights, D, D)), torch.zeros_like(final)
    g_states, g_final, steps, after, last = rows_as_replicas(grad_states, grad_final, lengths, states, final)
    adjoints, dx0 = adjoints_of(g_states, g_final, to.flatten(0, 1), D.flatten(0, 1), None, steps, after, last)
    adjoints = adjoints.view(D.shape)
    before = previous(states.flatten(0, 1), None if x0 is None else x0.flatten(0, 1)).view(D.shape)
    dD = of_diagonal(adjoints, before, to)
    sizes = constants(dictionary.shape[1], N, dictionary.dtype)
    tiles, each = triton.cdiv(B * L, sizes["PLACES"]), dictionary[0].numel()
    share = triton.cdiv(tiles, max(FEWEST_PROGRAMS, MOST_PARTS // each))
    programs = triton.cdiv(tiles, share)
    dcolumns = dictionary.new_empty(programs, R, each)
    dweights = torch.empty_like(weights)
    gradients_kernel[(programs, R, triton.cdiv(dictionary.shape[1], sizes["KB"]))](
        dictionary.mT.contiguous(),
        weights,
        pairs(adjoints),
        pairs(D * before),
        dcolumns,
        dweights,
        B * L,
        share,
        **sizes,
    )
    summed = partial_sums(dcolumns, dictionary.dtype)[0].view(dictionary.shape).mT
    return summed, dweights, dD, None if b is None else adjoints, None if x0 is None else dx0.view(final.shape)
