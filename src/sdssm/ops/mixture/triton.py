# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The mixture scan on GPUs: A_t is M_t = sum_k weights_t[k] A_k with normalised columns.

The column norms do not depend on the state, so one kernel computes them for all positions. From the adjoints dz_t the
gradients of the dictionary and of the weights are computed for all positions independently (_triton/mixed_rows.py).
Between the two is a scan. If it is sequential and the dictionary fits the registers, it mixes each matrix when it is
needed. Otherwise the matrices of one piece of the sequences after another are written to a workspace of constant size
(_triton/pieces.py) and read as those of a dense scan. Memory: O(L N).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.mixed_rows import MIN_PADDED, gradients_kernel, matrices_kernel, norms_kernel
from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops._triton.pieces import Piece, backward_in_pieces, cut, forward_in_pieces
from sdssm.ops._triton.scan import scan_backward, scan_forward
from sdssm.ops._triton.source import Source, accumulator, has_tensor_cores, register_limit
from sdssm.ops._triton.tile import DENSE, MIXTURE
from sdssm.ops.padding import next_power_of_two


@dataclass(frozen=True)
class MixingTile:
    """Positions, columns and rows that a program has at a time, its warps, and the loads that are on their way.

    registers: the most of a thread on NVIDIA's GPUs, so that more programs share a multiprocessor; None for no limit.
    """

    positions: int
    columns: int
    rows: int
    warps: int
    stages: int
    registers: int | None = None


#: The tiles of the kernels of mixed_rows.py in float32. With float64 they are smaller.
NORMS, MATRICES = MixingTile(64, 16, 8, 4, 2), MixingTile(64, 64, 2, 4, 2)
GRADIENTS = MixingTile(64, 8, 8, 4, 2, registers=168)
#: Rows for which a program computes matrices.
MATRIX_ROWS = 32
#: The gradient of the weights is summed over at most this many groups of rows and columns.
GROUPS = 64
#: Desired number of programs that compute gradients, three for each multiprocessor of a large GPU: each adds up as many
#: positions as that leaves.
PROGRAMS = 396
#: The smallest blocks (padded) whose chunk products are computed from matrices in memory, by tensor cores.
LEAST_IN_MEMORY = 64


def tile_constants(dictionary: Tensor, tile: MixingTile) -> dict[str, Any]:
    """Return the compile-time constants of a kernel, its warps and its stages."""
    is_float64 = dictionary.dtype == torch.float64
    uses_tensor_cores = not is_float64 and has_tensor_cores(dictionary)
    N = dictionary.shape[-1]
    padded = max(16, next_power_of_two(N))
    return {
        "N": N,
        "K": dictionary.shape[1],
        "KP": max(MIN_PADDED, next_power_of_two(dictionary.shape[1])),
        "P": tile.positions // 2 if is_float64 else tile.positions,
        "J": 16 if is_float64 else min(tile.columns, padded),
        "ROWS": 1 if is_float64 else min(tile.rows, padded),
        "NVIDIA": uses_tensor_cores,
        "ACC": tl.float64 if is_float64 else tl.float32,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        **(register_limit(dictionary.dtype, tile.registers) if uses_tensor_cores and tile.registers else {}),
    }


def transpose(dictionary: Tensor) -> Tensor:
    """Return the dictionary as (R, N * N, K)."""
    return dictionary.flatten(2).transpose(1, 2).contiguous()


def column_norms(dictionary: Tensor, transposed: Tensor, weights: Tensor, p: Tensor) -> Tensor:
    """Return the column l_p norms of the mixed matrix at every position, (R, B, L, N)."""
    R, B, L, _ = weights.shape
    N = dictionary.shape[-1]
    norms = dictionary.new_empty((R, B, L, N), dtype=accumulator(dictionary.dtype))
    if norms.numel() > 0:
        fixed = tile_constants(dictionary, NORMS)
        grid = (triton.cdiv(N, fixed["J"]), triton.cdiv(B * L, fixed["P"]), R)
        norms_kernel[grid](transposed, weights, p, norms, B * L, **fixed)
    return norms


def matrices_of(dictionary: Tensor, transposed: Tensor, weights: Tensor, norms: Tensor | None, piece: Piece) -> Tensor:
    """Return the matrices A_t of a piece, (rows, steps, 1, N, N)."""
    _, B, L, _ = weights.shape
    N = dictionary.shape[-1]
    R, rows = piece.replicas.stop - piece.replicas.start, piece.rows.stop - piece.rows.start
    count = rows * piece.count
    matrices = dictionary.new_empty((R * rows, piece.count, 1, N, N), dtype=accumulator(dictionary.dtype))
    fixed = tile_constants(dictionary, MATRICES)
    blocks = max(1, MATRIX_ROWS // fixed["ROWS"])
    groups = triton.cdiv(N, fixed["J"]) * triton.cdiv(N, blocks * fixed["ROWS"])
    matrices_kernel[(groups, triton.cdiv(count, fixed["P"]), R)](
        transposed[piece.replicas], weights[piece.replicas], None if norms is None else norms[piece.replicas], matrices,
        count, B, L, piece.rows.start, piece.steps.start, piece.count, blocks, **fixed,
    )  # fmt: skip
    return matrices


def parameter_gradients(
    dictionary: Tensor, weights: Tensor, norms: Tensor | None, p: Tensor | None, x0: Tensor | None,
    states: Tensor, adjoints: Tensor, pullbacks: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return ddictionary (R, K, N, N) and dweights (R, B, L, K) from the adjoints."""
    R, B, L, K = weights.shape
    N = dictionary.shape[-1]
    if weights.numel() == 0:
        return torch.zeros_like(dictionary), torch.zeros_like(weights)
    fixed = tile_constants(dictionary, GRADIENTS)
    columns, blocks = triton.cdiv(N, fixed["J"]), triton.cdiv(N, fixed["ROWS"])
    blocks_per_program = triton.cdiv(blocks, max(1, min(blocks, GROUPS // columns)))
    groups = columns * triton.cdiv(blocks, blocks_per_program)
    all_tiles = triton.cdiv(B * L, fixed["P"])
    tiles = triton.cdiv(all_tiles, max(1, min(all_tiles, PROGRAMS // (R * groups))))
    segments = triton.cdiv(all_tiles, tiles)
    ddictionary = adjoints.new_empty(segments, R, K, N, N)
    dweights = adjoints.new_empty(groups, R, B, L, K)
    gradients_kernel[(groups, segments, R)](
        dictionary, weights, norms, p, adjoints, pullbacks, states, x0, ddictionary, dweights,
        B * L, B, L, tiles, blocks_per_program, **fixed,
    )  # fmt: skip
    dictionary_gradient, _ = sum_parts(ddictionary.view(segments, R, -1), dictionary.dtype)
    weights_gradient, _ = sum_parts(dweights.view(groups, R, -1), weights.dtype)
    return dictionary_gradient.view(dictionary.shape), weights_gradient.view(weights.shape)


def source_on_chip(dictionary: Tensor, weights: Tensor, norms: Tensor | None, mode: str) -> Source | None:
    """Return the source of a scan that mixes the matrices itself, or None if it should read them from memory."""
    R, B, L, K = weights.shape
    size = dictionary.shape[-1]
    source = Source(MIXTURE, dictionary, R * B, L, 1, size, weights=weights, norms=norms, count=K, rows_per_replica=B)
    if source.is_wide or not source.is_resident:
        return None
    return source if mode == "recurrent" or next_power_of_two(size) < LEAST_IN_MEMORY else None


def source_in_memory(
    dictionary: Tensor, transposed: Tensor, weights: Tensor, norms: Tensor | None, piece: Piece
) -> Source:
    """Compute the matrices of a piece, and return the source of a scan that reads them."""
    matrices = matrices_of(dictionary, transposed, weights, norms, piece)
    return Source(DENSE, matrices, matrices.shape[0], piece.count, 1, dictionary.shape[-1])


def forward(
    dictionary: Tensor, weights: Tensor, b: Tensor | None, x0: Tensor | None, p: Tensor | None,
    lengths: Tensor | None, *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return states (R, B, L, N), final (R, B, N), factors (R, B, L) and norms (R, B, L, N).

    Factors are empty without `rescale`, norms without p.
    """
    R, B, L, _ = weights.shape
    N, dtype = dictionary.shape[-1], dictionary.dtype
    nothing = dictionary.new_empty(0, dtype=accumulator(dtype))
    if weights.numel() == 0:
        empty = nothing.new_empty((R, B, L)) if rescale else nothing
        return dictionary.new_empty(R, B, L, N), dictionary.new_empty(R, B, N), empty, nothing.new_empty(R, B, L, N)
    transposed = norms = None
    if p is not None:
        transposed = transpose(dictionary)
        norms = column_norms(dictionary, transposed, weights, p)
    source = source_on_chip(dictionary, weights, norms, mode)
    factors: Tensor | None
    if source is not None:
        states, final, factors = scan_forward(source, b, x0, lengths, rescale, mode)
    else:
        if transposed is None:
            transposed = transpose(dictionary)
        states, final, factors = forward_in_pieces(
            cut(R, B, L, N * N * nothing.itemsize),
            functools.partial(source_in_memory, dictionary, transposed, weights, norms),
            b, x0, lengths, rescale, mode,
        )  # fmt: skip
    return (
        states.view(R, B, L, N).to(dtype),
        final.view(R, B, N).to(dtype),
        factors.view(R, B, L) if rescale and factors is not None else nothing,
        nothing if norms is None else norms,
    )


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, dictionary: Tensor, weights: Tensor, b: Tensor | None,
    x0: Tensor | None, p: Tensor | None, lengths: Tensor | None, states: Tensor, factors: Tensor, norms: Tensor,
    *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Return the gradients of dictionary, weights, b (None without b) and x0."""
    R, B, L, _ = weights.shape
    N = dictionary.shape[-1]
    if weights.numel() == 0:
        dx0 = dictionary.new_zeros(R, B, N)
        return torch.zeros_like(dictionary), torch.zeros_like(weights), None if b is None else torch.zeros_like(b), dx0
    present_norms = None if p is None else norms
    source = source_on_chip(dictionary, weights, present_norms, mode)
    if source is not None:
        adjoints, dx0, pullbacks = scan_backward(
            source,
            None if grad_states is None else grad_states.view(R * B, L, N),
            None if grad_final is None else grad_final.view(R * B, N),
            None if lengths is None else lengths.view(-1),
            states.view(R * B, L, N), factors, rescale, mode, pullbacks=p is not None,
        )  # fmt: skip
    else:
        adjoints, dx0, pullbacks = backward_in_pieces(
            cut(R, B, L, N * N * accumulator(dictionary.dtype).itemsize),
            functools.partial(source_in_memory, dictionary, transpose(dictionary), weights, present_norms),
            grad_states, grad_final, lengths, states, factors, rescale, mode, pullbacks=p is not None,
        )  # fmt: skip
    ddictionary, dweights = parameter_gradients(dictionary, weights, present_norms, p, x0, states, adjoints, pullbacks)
    db = None if b is None else adjoints.view(b.shape).to(b.dtype)
    return ddictionary, dweights, db, dx0.view(R, B, N).to(dictionary.dtype)
