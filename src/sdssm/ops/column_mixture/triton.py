# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Column-mixture scan on NVIDIA GPUs: find the 1 of each column, then run the column-one-hot scan.

The mixtures M_t, N x N numbers per step, are never stored. A program takes a tile of steps and loops over the columns:
column j of M_t for all its steps is one tile, computed from the dictionary. The forward pass keeps only the row of the
largest entry. The backward pass recomputes the tile and its softmax s. With the adjoint a of x_t and z = D_t x_{t-1},
column j receives

    dM_j = s (G - sum(s G)),   G = Re(conj(a) z_j),

which the program adds to its partial sums of the gradients at once.

Arguments and constants of the kernels: `columns` is the dictionary transposed, (R, K, N, N), STEPS steps per tile, NP
is N padded to a power of two, KB matrices per tile, ACC the accumulator's dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops.column_one_hot.gradients import diagonal_gradient
from sdssm.ops.column_one_hot.triton import as_pairs, run_backward, run_forward
from sdssm.ops.layout import rows_as_replicas
from sdssm.ops.padding import next_power_of_two
from sdssm.ops.transitions import previous_states

#: Entries of a program's tiles in float32, steps x N and matrices x N, and the most steps and matrices of a tile.
STEP_ENTRIES, MATRIX_ENTRIES, MAX_STEPS, MAX_MATRICES = 4096, 2048, 64, 32
#: The smallest side of a tile that tensor cores multiply.
MIN_TILE = 16
#: Each program stores a partial sum of the dictionary's gradient: the most entries of all partial sums of a replica,
#: and the fewest programs, enough for a GPU. Neither depends on the number of replicas: they fix the order of a sum.
MAX_PARTIAL_ENTRIES, MIN_PROGRAMS = 1 << 24, 32


@triton.jit
def load_weights(weights, step, step_mask, start, K: tl.constexpr, KB: tl.constexpr):
    """Load the weights of KB matrices from `start` on: (STEPS, KB)."""
    k = start + tl.arange(0, KB)
    return tl.load(weights + step[:, None] * K + k[None, :], mask=step_mask[:, None] & (k < K)[None, :], other=0.0)


@triton.jit
def load_column(columns, j, start, K: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr):
    """Load column j of KB matrices from `start` on: (KB, NP)."""
    k = start + tl.arange(0, KB)
    i = tl.arange(0, NP)
    return tl.load(columns + (k[:, None] * N + j) * N + i[None, :], mask=(k < K)[:, None] & (i < N)[None, :], other=0.0)


@triton.jit
def mix_column(
    columns, weights, w, step, step_mask, j, K: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr,
    PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Return column j of the mixtures M_t, (STEPS, NP), with -inf as padding.

    w holds the weights of the first KB matrices.
    """
    mixed = tl.dot(w, load_column(columns, j, 0, K, N, NP, KB), input_precision=PRECISION, out_dtype=ACC)
    for start in range(KB, K, KB):
        more_w = load_weights(weights, step, step_mask, start, K, KB)
        mixed += tl.dot(more_w, load_column(columns, j, start, K, N, NP, KB), input_precision=PRECISION, out_dtype=ACC)
    return tl.where((tl.arange(0, NP) < N)[None, :], mixed, float("-inf"))


@triton.jit(do_not_specialize=["step_count"])
def targets_kernel(
    columns, weights, targets, step_count, K: tl.constexpr, N: tl.constexpr, STEPS: tl.constexpr, NP: tl.constexpr,
    KB: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Store the row of the largest entry of each column, for STEPS of the steps of a replica."""
    replica = tl.program_id(1).to(tl.int64)
    step = tl.program_id(0).to(tl.int64) * STEPS + tl.arange(0, STEPS)
    step_mask = step < step_count
    step += replica * step_count
    columns += replica * K * N * N
    w = load_weights(weights, step, step_mask, 0, K, KB)
    for j in range(N):
        mixed = mix_column(columns, weights, w, step, step_mask, j, K, N, NP, KB, PRECISION, ACC)
        # With NaN in the column, argmax may return an index of the padding: the target must stay below N.
        target = tl.minimum(tl.argmax(mixed, axis=1), N - 1)
        tl.store(targets + step * N + j, target.to(tl.int32), mask=step_mask)


@triton.jit(do_not_specialize=["step_count", "tiles_per_program"])
def column_mixture_gradients_kernel(
    columns, weights, adjoints, z, dcolumns, dweights, step_count, tiles_per_program, K: tl.constexpr, N: tl.constexpr,
    STEPS: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of KB matrices and their weights.

    A program adds up `tiles_per_program` tiles of STEPS steps of a replica.

    dcolumns (programs, R, K, N, N) are partial sums, to be added over the programs.
    """
    replica = tl.program_id(1).to(tl.int64)
    first_matrix = tl.program_id(2) * KB
    i = tl.arange(0, NP)
    k = first_matrix + tl.arange(0, KB)
    column_mask = (k < K)[:, None] & (i < N)[None, :]
    columns += replica * K * N * N
    dcolumns += (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + replica) * K * N * N
    start = tl.program_id(0) * tiles_per_program
    for tile in range(start, tl.minimum(start + tiles_per_program, tl.cdiv(step_count, STEPS))):
        step = tl.arange(0, STEPS).to(tl.int64) + tile * STEPS
        step_mask = step < step_count
        step += replica * step_count
        state_mask = step_mask[:, None] & (i < N)[None, :]
        offsets = 2 * (step[:, None] * N + i[None, :])
        ar = tl.load(adjoints + offsets, mask=state_mask, other=0.0)
        ai = tl.load(adjoints + offsets + 1, mask=state_mask, other=0.0)
        w = load_weights(weights, step, step_mask, 0, K, KB)
        own_w = load_weights(weights, step, step_mask, first_matrix, K, KB)
        dw = tl.zeros((STEPS, KB), ACC)
        for j in range(N):
            mixed = mix_column(columns, weights, w, step, step_mask, j, K, N, NP, KB, PRECISION, ACC)
            s = tl.exp(mixed - tl.max(mixed, axis=1)[:, None])
            s = s / tl.sum(s, axis=1)[:, None]
            zr = tl.load(z + 2 * (step * N + j), mask=step_mask, other=0.0)
            zi = tl.load(z + 2 * (step * N + j) + 1, mask=step_mask, other=0.0)
            G = ar * zr[:, None] + ai * zi[:, None]
            dM = s * (G - tl.sum(s * G, axis=1)[:, None])
            m = load_column(columns, j, first_matrix, K, N, NP, KB)
            dw += tl.dot(dM, tl.trans(m), input_precision=PRECISION, out_dtype=ACC)
            dcolumn = tl.dot(tl.trans(own_w), dM, input_precision=PRECISION, out_dtype=ACC)
            pointers = dcolumns + (k[:, None] * N + j) * N + i[None, :]
            if tile > start:  # add to the sum of the tiles before; no other program stores there
                dcolumn += tl.load(pointers, mask=column_mask, other=0.0)
            tl.store(pointers, dcolumn, mask=column_mask)
        tl.store(dweights + step[:, None] * K + k[None, :], dw, mask=step_mask[:, None] & (k < K)[None, :])


def kernel_constants(K: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the compile-time constants of the kernels and their warps; float64 takes half of everything.

    float32 is multiplied as three tensor-core products of its parts, which keeps float32 precision.
    """
    NP = max(MIN_TILE, next_power_of_two(N))
    is_float64 = dtype == torch.float64
    width = NP * (2 if is_float64 else 1)
    return {
        "K": K,
        "N": N,
        "STEPS": max(MIN_TILE, min(MAX_STEPS, STEP_ENTRIES // width)),
        "NP": NP,
        "KB": max(MIN_TILE, min(MAX_MATRICES, MATRIX_ENTRIES // width, next_power_of_two(K))),
        "PRECISION": "ieee" if is_float64 else "tf32x3",
        "ACC": tl.float64 if is_float64 else tl.float32,
        "num_warps": 4 if NP <= 64 else 8,
    }


def forward(
    dictionary: Tensor, weights: Tensor, D: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (R, B, L, N), final (R, B, N) and targets (R, B, L, N).

    The targets are the row of the 1 in each column.

    dictionary (R, K, N, N), weights (R, B, L, K), D and b (R, B, L, N), x0 (R, B, N), lengths (R, B).
    """
    R, B, L, N = D.shape
    targets = torch.empty(D.shape, dtype=torch.int32, device=D.device)
    if targets.numel():
        constants = kernel_constants(dictionary.shape[1], N, dictionary.dtype)
        grid = triton.cdiv(B * L, constants["STEPS"]), R
        targets_kernel[grid](dictionary.mT.contiguous(), weights, targets, B * L, **constants)
    states, final = run_forward(targets.flatten(0, 1), D.flatten(0, 1), None, *rows_as_replicas(b, x0, lengths))
    return states.view(D.shape), final.view(R, B, N), targets


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, dictionary: Tensor, weights: Tensor, D: Tensor,
    b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, states: Tensor, final: Tensor, targets: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of dictionary, weights, D, b and x0."""
    R, B, L, N = D.shape
    if not D.numel():
        return *(torch.zeros_like(tensor) for tensor in (dictionary, weights, D, D)), torch.zeros_like(final)
    grad_states, grad_final = rows_as_replicas(grad_states, grad_final)
    others = rows_as_replicas(lengths, states, final)
    adjoints, dx0 = run_backward(grad_states, grad_final, targets.flatten(0, 1), D.flatten(0, 1), None, *others)
    adjoints = adjoints.view(D.shape)
    previous_x = previous_states(states.flatten(0, 1), None if x0 is None else x0.flatten(0, 1)).view(D.shape)
    dD = diagonal_gradient(adjoints, previous_x, targets)
    constants = kernel_constants(dictionary.shape[1], N, dictionary.dtype)
    tiles, entries = triton.cdiv(B * L, constants["STEPS"]), dictionary[0].numel()
    tiles_per_program = triton.cdiv(tiles, max(MIN_PROGRAMS, MAX_PARTIAL_ENTRIES // entries))
    programs = triton.cdiv(tiles, tiles_per_program)
    dcolumns = dictionary.new_empty(programs, R, entries)
    dweights = torch.empty_like(weights)
    column_mixture_gradients_kernel[(programs, R, triton.cdiv(dictionary.shape[1], constants["KB"]))](
        dictionary.mT.contiguous(),
        weights,
        as_pairs(adjoints),
        as_pairs(D * previous_x),
        dcolumns,
        dweights,
        B * L,
        tiles_per_program,
        **constants,
    )
    ddictionary = sum_parts(dcolumns, dictionary.dtype)[0].view(dictionary.shape).mT
    return ddictionary, dweights, dD, None if b is None else adjoints, None if x0 is None else dx0.view(final.shape)
