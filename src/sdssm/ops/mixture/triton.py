# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The mixture scan on NVIDIA GPUs: A_t is M_t = sum_k weights_t[k] A_k with normalised columns.

No A_t is stored. The column norms do not depend on the state, so one kernel computes them for all positions; the scan
mixes each matrix when it is needed; and from the adjoints dz_t the gradients of the dictionary and of the weights are
computed for all positions independently. Memory: O(L N).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops._triton.scan import scan_backward, scan_forward
from sdssm.ops._triton.source import MAX_ON_CHIP, Source, accumulator
from sdssm.ops._triton.tile import MIXTURE, over_columns
from sdssm.ops.padding import next_power_of_two

#: Desired number of programs for the kernels that treat positions independently.
PROGRAMS = 2048
#: Dictionary entries that a warp holds in registers.
ENTRIES_PER_WARP = 2048
#: The gradient of the weights is summed over at most this many groups of tiles.
GROUPS = 32
#: Warps per program: a sum within one warp needs no barrier.
WARPS = 1


@triton.jit(do_not_specialize=["positions", "segment"])
def column_norms_kernel(
    dictionary, weights, p, norms, positions, segment,
    N: tl.constexpr, K: tl.constexpr, NP: tl.constexpr, TJ: tl.constexpr, KP: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute norms_t[j] = (sum_i |M_t[i, j]|^p)^(1/p) for a segment of positions and TJ columns.

    Absolute values are divided by a reference value of the column, so that no power overflows: its largest entry in the
    dictionary, which costs nothing per position, or for a large p (and in float64) its largest entry in M_t itself.
    """
    replica = tl.program_id(2).to(tl.int64)
    k = tl.arange(0, KP)
    entry = tl.arange(0, NP * TJ)[None, :]  # flat, so that a thread holds the same entries of every A_k
    row = entry // TJ
    column = tl.program_id(0) * TJ + entry % TJ
    inside = (k < K)[:, None] & (row < N) & (column < N)
    tile = tl.load(dictionary + ((replica * K + k[:, None]) * N + row) * N + column, mask=inside, other=0.0).to(ACC)
    j = tl.program_id(0) * TJ + tl.arange(0, TJ)
    power = tl.load(p + replica).to(ACC)
    largest = tl.max(tl.reshape(tl.max(tl.abs(tile), axis=0), (NP, TJ)), axis=0)
    start = tl.program_id(1) * segment
    end = tl.minimum(start + segment, positions)
    w = tl.load(weights + (replica * positions + start) * K + k, mask=k < K, other=0.0).to(ACC)
    for at in range(start, end):
        position = replica * positions + at
        following = replica * positions + tl.minimum(at + 1, end - 1)
        w_next = tl.load(weights + following * K + k, mask=k < K, other=0.0).to(ACC)
        size = tl.abs(tl.reshape(tl.sum(w[:, None] * tile, axis=0), (NP, TJ)))  # |M_t|
        if power == 1.0:
            rho = tl.sum(size, axis=0)
        else:
            reference = largest
            if (power > 4.0) | (tl.float64 == ACC):
                reference = tl.max(size, axis=0)
            ratio = over_columns(size, tl.where(reference > 0.0, reference, 1.0)[None, :], ACC)
            if power == 2.0:
                rho = reference * tl.sqrt(tl.sum(ratio * ratio, axis=0))
            else:
                total = tl.sum(tl.where(ratio > 0.0, tl.exp2(power * tl.log2(ratio)), 0.0), axis=0)
                rho = reference * tl.where(total > 0.0, tl.exp2(tl.log2(total) / power), 0.0)
        tl.store(norms + position * N + j, rho, mask=j < N)
        w = w_next


@triton.jit
def position_inputs(
    weights, norms, adjoints, pullbacks, states, x0, replica, positions, rows, at, L, k, i, j, in_range,
    N: tl.constexpr, K: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Load weights_t, dz_t[i], x_{t-1}[j], h_t[j] and norms_t[j] of a position.

    Without norms the last two are 0 and 1.
    """
    position = replica * positions + at
    w = tl.load(weights + position * K + k, mask=k < K, other=0.0).to(ACC)
    dz = tl.load(adjoints + position * N + i, mask=in_range, other=0.0).to(ACC)
    if x0 is None:
        x = tl.load(states + (position - 1) * N + j, mask=in_range & (at % L > 0), other=0.0).to(ACC)
    else:
        before = tl.where(at % L > 0, states + (position - 1) * N, x0 + (replica * rows + at // L) * N)
        x = tl.load(before + j, mask=in_range, other=0.0).to(ACC)
    h = tl.zeros_like(x)
    rho = tl.full(x.shape, 1.0, ACC)
    if norms is not None:
        h = tl.load(pullbacks + position * N + j, mask=in_range, other=0.0).to(ACC)
        rho = tl.load(norms + position * N + j, mask=in_range, other=1.0).to(ACC)
    return w, dz, x, h, rho


@triton.jit(do_not_specialize=["positions", "rows", "L", "segment", "groups"])
def gradients_kernel(
    dictionary, weights, norms, p, adjoints, pullbacks, states, x0, ddictionary, dweights,
    positions, rows, L, segment, groups,
    N: tl.constexpr, K: tl.constexpr, E: tl.constexpr, KP: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute partial sums of dA_k = sum_t weights_t[k] dM_t and of dweights_t[k] = <A_k, dM_t>.

    With rho_j the norm of column j, A = M / rho, dA = dz x^T and h = A^T dz (the pullback),

        dM[i, j] = x_j / rho_j (dz_i - h_j sign(M_ij) (|M_ij| / rho_j)^(p-1)).

    A program has a segment of positions and every groups-th tile of E entries of the flat matrices. ddictionary
    (segments, R, K, N, N) is summed over segments afterwards, dweights (groups, R * positions, K) over groups.
    """
    replica = tl.program_id(2).to(tl.int64)
    group = tl.program_id(0)
    k = tl.arange(0, KP)
    start = tl.program_id(1) * segment
    end = tl.minimum(start + segment, positions)
    part = tl.program_id(1) * tl.num_programs(2) + replica
    power = tl.full((), 1.0, ACC)
    if norms is not None:
        power = tl.load(p + replica).to(ACC)
    tiles: tl.constexpr = (N * N + E - 1) // E
    for number in range(group, tiles, groups):
        entry = number * E + tl.arange(0, E)
        i = entry // N
        j = entry % N
        in_range = tl.full((E,), 1, tl.int1) if N * N % E == 0 else entry < N * N  # a full tile needs no mask
        offset = k[:, None] * N * N + entry[None, :]
        inside = (k < K)[:, None] & in_range[None, :]
        tile = tl.load(dictionary + replica * K * N * N + offset, mask=inside, other=0.0).to(ACC)
        acc = tl.zeros((KP, E), ACC)
        w, dM, x, h, rho = position_inputs(
            weights, norms, adjoints, pullbacks, states, x0, replica, positions, rows,
            start, L, k, i, j, in_range, N, K, ACC,
        )  # fmt: skip
        for at in range(start, end):
            position = replica * positions + at
            w_next, dz_next, x_next, h_next, rho_next = position_inputs(
                weights, norms, adjoints, pullbacks, states, x0, replica, positions, rows,
                tl.minimum(at + 1, end - 1), L, k, i, j, in_range, N, K, ACC,
            )  # fmt: skip
            if norms is not None:
                rho = tl.where(rho > 0.0, rho, 1.0)
                x = over_columns(x, rho, ACC)
                ratio = over_columns(tl.sum(w[:, None] * tile, axis=0), rho, ACC)  # A_t
                size = tl.abs(ratio)
                slope = tl.where(size > 0.0, tl.exp2((power - 1.0) * tl.log2(size)), 0.0)
                dM -= h * tl.where(ratio < 0.0, -slope, slope)
            dM = dM * x
            acc += w[:, None] * dM[None, :]
            dw = tl.sum(tile * dM[None, :], axis=1)
            place = dweights + (group * tl.num_programs(2) * positions + position) * K + k
            if number != group:  # not the first tile of this program
                dw += tl.load(place, mask=k < K, other=0.0)
            tl.store(place, dw, mask=k < K)
            w, dM, x, h, rho = w_next, dz_next, x_next, h_next, rho_next
        tl.store(ddictionary + part * K * N * N + offset, acc, mask=inside)


def constants(dictionary: Tensor) -> dict[str, Any]:
    """Return the compile-time constants that both kernels have."""
    return {
        "N": dictionary.shape[-1],
        "K": dictionary.shape[1],
        "KP": next_power_of_two(dictionary.shape[1]),
        "ACC": tl.float64 if dictionary.dtype == torch.float64 else tl.float32,
    }


def column_norms(dictionary: Tensor, weights: Tensor, p: Tensor) -> Tensor:
    """Return the column l_p norms of the mixed matrix at every position, (R, B, L, N)."""
    R, B, L, _ = weights.shape
    N = dictionary.shape[-1]
    norms = dictionary.new_empty((R, B, L, N), dtype=accumulator(dictionary.dtype))
    if norms.numel() == 0:
        return norms
    padded = next_power_of_two(N)
    fixed = constants(dictionary)
    columns = max(1, min(padded, WARPS * ENTRIES_PER_WARP // (fixed["KP"] * padded)))
    tiles = triton.cdiv(N, columns)
    segments = max(1, min(B * L, PROGRAMS // (R * tiles)))
    segment = triton.cdiv(B * L, segments)
    column_norms_kernel[(tiles, triton.cdiv(B * L, segment), R)](
        dictionary, weights, p, norms, B * L, segment, NP=padded, TJ=columns,
        num_warps=WARPS if padded <= MAX_ON_CHIP else 4 * WARPS, **fixed,
    )  # fmt: skip
    return norms


def parameter_gradients(
    dictionary: Tensor, weights: Tensor, norms: Tensor | None, p: Tensor | None, x0: Tensor | None,
    states: Tensor, adjoints: Tensor, pullbacks: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return ddictionary (R, K, N, N) and dweights (R, B, L, K) from the adjoints."""
    R, B, L, K = weights.shape
    N = dictionary.shape[-1]
    if weights.numel() == 0:
        return torch.zeros_like(dictionary), torch.zeros_like(weights)
    fixed = constants(dictionary)
    entries = max(32, WARPS * ENTRIES_PER_WARP // fixed["KP"])
    groups = min(GROUPS, triton.cdiv(N * N, entries))
    segment = triton.cdiv(B * L, max(1, min(B * L, PROGRAMS // (R * groups))))
    segments = triton.cdiv(B * L, segment)
    ddictionary = adjoints.new_empty(segments, R, K, N, N)
    dweights = adjoints.new_empty(groups, R, B, L, K)
    gradients_kernel[(groups, segments, R)](
        dictionary, weights, norms, p, adjoints, pullbacks, states, x0, ddictionary, dweights,
        B * L, B, L, segment, groups, E=entries, num_warps=WARPS, **fixed,
    )  # fmt: skip
    dictionary_gradient, _ = sum_parts(ddictionary.view(segments, R, -1), dictionary.dtype)
    weights_gradient, _ = sum_parts(dweights.view(groups, R, -1), weights.dtype)
    return dictionary_gradient.view(dictionary.shape), weights_gradient.view(weights.shape)


def source_of(dictionary: Tensor, weights: Tensor, norms: Tensor | None) -> Source:
    """Return the matrices as the kernels read them."""
    R, B, L, K = weights.shape
    size = dictionary.shape[-1]
    return Source(MIXTURE, dictionary, R * B, L, 1, size, weights=weights, norms=norms, count=K, rows_per_replica=B)


def forward(
    dictionary: Tensor, weights: Tensor, b: Tensor | None, x0: Tensor | None, p: Tensor | None,
    lengths: Tensor | None, *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return states (R, B, L, N), final (R, B, N), factors (R, B, L) and norms (R, B, L, N).

    Factors are empty without `rescale`, norms without p.
    """
    R, B, L, _ = weights.shape
    norms = None if p is None else column_norms(dictionary, weights, p)
    states, final, factors = scan_forward(source_of(dictionary, weights, norms), b, x0, lengths, rescale, mode)
    return (
        states.view(R, B, L, states.shape[-1]),
        final.view(R, B, states.shape[-1]),
        factors.view(R, B, L) if rescale else factors,
        dictionary.new_empty(0, dtype=accumulator(dictionary.dtype)) if norms is None else norms,
    )


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, dictionary: Tensor, weights: Tensor, b: Tensor | None,
    x0: Tensor | None, p: Tensor | None, lengths: Tensor | None, states: Tensor, factors: Tensor, norms: Tensor,
    *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Return the gradients of dictionary, weights, b (None without b) and x0."""
    R, B, _, _ = weights.shape
    norms_or_none = None if p is None else norms
    source = source_of(dictionary, weights, norms_or_none)
    rows = (source.rows, source.length, source.state)
    adjoints, dx0, pullbacks = scan_backward(
        source,
        None if grad_states is None else grad_states.view(rows),
        None if grad_final is None else grad_final.view(rows[0], rows[2]),
        None if lengths is None else lengths.view(-1),
        states.view(rows), factors, rescale, mode, pullbacks=p is not None,
    )  # fmt: skip
    ddictionary, dweights = parameter_gradients(dictionary, weights, norms_or_none, p, x0, states, adjoints, pullbacks)
    db = None if b is None else adjoints.view(b.shape).to(b.dtype)
    return ddictionary, dweights, db, dx0.view(R, B, dx0.shape[-1]).to(dictionary.dtype)
