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
from sdssm.ops._triton.scan import power_of_two
from sdssm.ops.column_mixture.cpu import rows_of
from sdssm.ops.column_one_hot.triton import adjoints_of, pairs, states_of
from sdssm.ops.transitions import previous

#: Entries of a program's tile (places x N) in float32, and the most places of one.
TILE, MOST_PLACES = 4096, 64


@triton.jit
def column_of(columns, weights, t, here, j, i, K, N: tl.constexpr, PLACES: tl.constexpr, NP: tl.constexpr,
              ACC: tl.constexpr):  # fmt: skip
    """Column j of the mixtures at some places: (PLACES, NP), beyond N smaller than all others."""
    mixed = tl.zeros((PLACES, NP), ACC)
    for k in range(K):
        w = tl.load(weights + t * K + k, mask=here, other=0.0)
        m = tl.load(columns + (k * N + j) * N + i, mask=i < N, other=0.0)
        mixed += w[:, None] * m[None, :]
    return tl.where((i < N)[None, :], mixed, float("-inf"))


@triton.jit(do_not_specialize=["M"])
def places_kernel(
    columns, weights, to, M, K: tl.constexpr, N: tl.constexpr, PLACES: tl.constexpr, NP: tl.constexpr,
    KP: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The row of each column's largest entry, for PLACES of the M places of a replica."""
    replica = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    here = t < M
    t += replica * M
    i = tl.arange(0, NP)
    columns += replica * K * N * N
    for j in range(N):
        mixed = column_of(columns, weights, t, here, j, i, K, N, PLACES, NP, ACC)
        tl.store(to + t * N + j, tl.argmax(mixed, axis=1).to(tl.int32), mask=here)


@triton.jit(do_not_specialize=["M"])
def gradients_kernel(
    columns, weights, adjoints, z, dcolumns, dweights, M, K: tl.constexpr, N: tl.constexpr, PLACES: tl.constexpr,
    NP: tl.constexpr, KP: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """For PLACES of the M places of a replica: dweights, and dcolumns (programs, R, K, N, N) to be summed over the
    programs."""
    replica = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    here = t < M
    t += replica * M
    i = tl.arange(0, NP)
    inside = here[:, None] & (i < N)[None, :]
    at = 2 * (t[:, None] * N + i[None, :])
    ar = tl.load(adjoints + at, mask=inside, other=0.0)
    ai = tl.load(adjoints + at + 1, mask=inside, other=0.0)
    columns += replica * K * N * N
    dcolumns += (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + replica) * K * N * N
    every = tl.arange(0, KP)
    dw = tl.zeros((PLACES, KP), ACC)
    for j in range(N):
        mixed = column_of(columns, weights, t, here, j, i, K, N, PLACES, NP, ACC)
        s = tl.exp(mixed - tl.max(mixed, axis=1)[:, None])
        s = s / tl.sum(s, axis=1)[:, None]
        zr = tl.load(z + 2 * (t * N + j), mask=here, other=0.0)
        zi = tl.load(z + 2 * (t * N + j) + 1, mask=here, other=0.0)
        G = ar * zr[:, None] + ai * zi[:, None]
        dM = s * (G - tl.sum(s * G, axis=1)[:, None])
        for k in range(K):
            w = tl.load(weights + t * K + k, mask=here, other=0.0)
            m = tl.load(columns + (k * N + j) * N + i, mask=i < N, other=0.0)
            dw += tl.where((every == k)[None, :], tl.sum(dM * m[None, :], axis=1)[:, None], 0.0)
            tl.store(dcolumns + (k * N + j) * N + i, tl.sum(dM * w[:, None], axis=0), mask=i < N)
    tl.store(dweights + t[:, None] * K + every[None, :], dw, mask=here[:, None] & (every < K)[None, :])


def constants(K: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Sizes of the tiles; float64 takes half of everything."""
    padded = max(2, power_of_two(N))
    tile = TILE if dtype == torch.float32 else TILE // 2
    places = max(2, min(MOST_PLACES, tile // padded))
    return {
        "K": K,
        "N": N,
        "PLACES": places,
        "NP": padded,
        "KP": max(2, power_of_two(K)),
        "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
        "num_warps": min(4, max(1, places * padded // 512)),
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
    states, final = states_of(to.flatten(0, 1), D.flatten(0, 1), None, *rows_of(b, x0, lengths))
    return states.view(D.shape), final.view(R, B, N), to


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, dictionary: Tensor, weights: Tensor, D: Tensor,
    b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, states: Tensor, final: Tensor, to: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of dictionary, weights, D, b and x0."""
    R, B, L, N = D.shape
    if not D.numel():
        return *(torch.zeros_like(one) for one in (dictionary, weights, D, D)), torch.zeros_like(final)
    g_states, g_final, steps, after, last = rows_of(grad_states, grad_final, lengths, states, final)
    adjoints, dx0 = adjoints_of(g_states, g_final, to.flatten(0, 1), D.flatten(0, 1), None, steps, after, last)
    adjoints = adjoints.view(D.shape)
    before = previous(states.flatten(0, 1), None if x0 is None else x0.flatten(0, 1)).view(D.shape)
    dD = (adjoints.gather(-1, to.long()) * before.conj()).resolve_conj()
    sizes = constants(dictionary.shape[1], N, dictionary.dtype)
    programs = triton.cdiv(B * L, sizes["PLACES"])
    dcolumns = dictionary.new_empty(programs, R, dictionary[0].numel())
    dweights = torch.empty_like(weights)
    gradients_kernel[(programs, R)](
        dictionary.mT.contiguous(), weights, pairs(adjoints), pairs(D * before), dcolumns, dweights, B * L, **sizes
    )
    summed = partial_sums(dcolumns, dictionary.dtype)[0].view(dictionary.shape).mT
    return summed, dweights, dD, None if b is None else adjoints, None if x0 is None else dx0.view(final.shape)
