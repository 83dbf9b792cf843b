# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Linear maps on NVIDIA GPUs: one kernel forward, one for the gradient of x, and one for that of the parameters.

The products run on tensor cores, as three products of TF32 parts, so that the error is that of plain float32 (see
`_triton/tensor_cores.py`; `tests/ops/test_linear.py` compares both with float64). float64 numbers are multiplied as
they are. If a tile has all inputs, a program splits its weights once and keeps them in shared memory, while it runs
over tiles of rows.

Bias and activation are applied to the sums in registers, and the derivative of the activation to gradients when they
are loaded. The gradients of weight and bias are sums over all rows: if there are many, each piece of the rows stores a
partial sum, and one more kernel adds them in an order that does not depend on the number of replicas.

Constants of the kernels: K entries of an input and N of a result, TM rows, TN results and TK inputs of a tile, WK and
WN the distances in memory of consecutive inputs and results in the weights, KIND the activation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.activations import activation, activation_slope
from sdssm.ops._triton.partial_sums import new_parts
from sdssm.ops._triton.source import has_tensor_cores
from sdssm.ops._triton.tensor_cores import multiply, multiply_rows, split, split_nearest
from sdssm.ops.padding import next_power_of_two


class ProductTile(NamedTuple):
    """The part of a product that a program computes at once: its sides, and how."""

    rows: int
    results: int
    inputs: int
    warps: int
    stages: int = 1  # tiles on their way at once


#: The product if a tile has all inputs: a program then keeps its weights, and takes several tiles of rows.
KEPT = ProductTile(64, 64, 64, 4, 2)
#: The product for more inputs than that: weights are loaded again for each tile.
LOADED = ProductTile(64, 64, 32, 4, 3)
#: The gradient of the weights; its rows are summed over.
GRADIENT = ProductTile(32, 64, 64, 4)
#: Programs of a launch of the product that keep weights: three for each multiprocessor of an H100 or H200.
PROGRAMS = 396
#: With more rows of each replica weights are reordered before they are loaded for each tile, in a kernel of its own.
MANY_ROWS = 256
#: For the gradient of the weights: the fewest rows of a piece, and the most pieces times tiles of a replica.
#: They must not depend on the number of replicas.
PIECE_ROWS, PIECES = 128, 24
#: The smallest side that `tl.dot` accepts.
SMALLEST = 16


@triton.jit
def load_gradient(grad, saved, offsets, mask, KIND: tl.constexpr):
    """Load a tile of the gradient of the activation's argument."""
    other: tl.constexpr = None if mask is None else 0.0
    tile = tl.load(grad + offsets, mask=mask, other=other)
    if KIND != "none":
        tile *= activation_slope(tl.load(saved + offsets, mask=mask, other=other), KIND)
    return tile


@triton.jit
def load_inputs(x, saved, rows, k, K: tl.constexpr, PADDED: tl.constexpr, KIND: tl.constexpr):
    """Load the inputs k of existing rows, (TM, TK)."""
    if PADDED:
        return load_gradient(x, saved, rows * K + k[None, :], (k < K)[None, :] & (rows >= 0), KIND)
    else:
        return load_gradient(x, saved, rows * K + k[None, :], None, KIND)


@triton.jit
def load_weights(
    weight, k, n, K: tl.constexpr, N: tl.constexpr, WK: tl.constexpr, WN: tl.constexpr,
    TK: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    """Load a tile of the weights, (TK, TN)."""
    places = k[:, None] * WK + n[None, :] * WN
    if K % TK == 0 and N % TN == 0:
        return tl.load(weight + places)
    else:
        return tl.load(weight + places, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)


@triton.jit
def store_results(
    out, before, bias, acc, first_row, left_over, n, N: tl.constexpr, TM: tl.constexpr, KIND: tl.constexpr
):
    """Add the bias, and store the sums in `before`, if it is given, and their activation in `out`."""
    if bias is not None:
        acc += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    m = tl.arange(0, TM)
    place = tl.minimum(m, left_over - 1)[:, None] * N + n[None, :]
    mask = (m < left_over)[:, None] & (n < N)[None, :]
    if before is not None:
        tl.store(before + first_row * N + place, acc, mask=mask)
    tl.store(out + first_row * N + place, activation(acc, KIND), mask=mask)


@triton.jit(do_not_specialize=["M", "tiles"])
def linear_product_kernel(
    x, saved, weight, bias, before, out, M, tiles,
    K: tl.constexpr, N: tl.constexpr, WK: tl.constexpr, WN: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, STAGES: tl.constexpr,
    SLOPE: tl.constexpr, KIND: tl.constexpr, NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill out = activation(x W + bias), (R, M, N), and before, the argument of the activation, if it is given.

    With SLOPE, x is the gradient of such an activation: it is multiplied by the derivative, which `saved` gives.
    A program computes TN results of a tile of rows, or of several tiles if it can keep its weights.
    """
    replica = tl.program_id(2).to(tl.int64)
    n = tl.program_id(1) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    m = tl.arange(0, TM)
    weight += replica * N * K
    if bias is not None:
        bias += replica * N
    if TK >= K:
        right, right_rest = split_nearest(load_weights(weight, k, n, K, N, WK, WN, TK, TN), NVIDIA)
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
            first_row = replica * M + tile * TM
            left_over = M - tile * TM
            rows = tl.minimum(m, left_over - 1)[:, None]  # those past the end repeat the last one
            slopes = saved
            if SLOPE != "none":
                slopes += first_row * K
            left, left_rest = split(load_inputs(x + first_row * K, slopes, rows, k, K, TK != K, SLOPE), NVIDIA)
            acc = multiply(left, left_rest, right, right_rest, NVIDIA, ACC)
            store_results(out, before, bias, acc, first_row, left_over, n, N, TM, KIND)
    else:
        first_row = replica * M + tl.program_id(0) * TM
        left_over = M - tl.program_id(0) * TM
        rows = tl.minimum(m, left_over - 1)[:, None]
        x += first_row * K
        if SLOPE != "none":
            saved += first_row * K
        acc = tl.zeros((TM, TN), ACC)
        for first in tl.range(0, K, TK, num_stages=STAGES):
            left, left_rest = split(load_inputs(x, saved, rows, first + k, K, K % TK != 0, SLOPE), NVIDIA)
            chunk, chunk_rest = split_nearest(load_weights(weight, first + k, n, K, N, WK, WN, TK, TN), NVIDIA)
            acc += multiply(left, left_rest, chunk, chunk_rest, NVIDIA, ACC)  # no chain, see `tensor_cores`
        store_results(out, before, bias, acc, first_row, left_over, n, N, TM, KIND)


@triton.jit
def load_rows(
    grad, saved, x, m, count, n, k, K: tl.constexpr, N: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
    KIND: tl.constexpr,
):  # fmt: skip
    """Load the gradients (TM, TN) and the inputs (TM, TK) of rows m, zeros for rows past `count`."""
    n_mask = (m < count)[:, None] if N % TN == 0 else (m < count)[:, None] & (n < N)[None, :]
    k_mask = (m < count)[:, None] if K % TK == 0 else (m < count)[:, None] & (k < K)[None, :]
    left = load_gradient(grad, saved, m[:, None] * N + n[None, :], n_mask, KIND)
    return left, tl.load(x + m[:, None] * K + k[None, :], mask=k_mask, other=0.0)


@triton.jit(do_not_specialize=["M", "piece"])
def linear_weight_gradient_kernel(
    grad, saved, x, weights, biases, M, piece,
    K: tl.constexpr, N: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
    WEIGHT_ROW: tl.constexpr, BIAS_ROW: tl.constexpr, BIAS: tl.constexpr, KIND: tl.constexpr,
    NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Store the partial sums of a piece of the rows: those of the weights (N, K), and those of the bias (N,).

    The next rows are loaded into registers during the product of the present ones.
    """
    replica = tl.program_id(2).to(tl.int64)
    tiles: tl.constexpr = (K + TK - 1) // TK
    n = tl.program_id(0) // tiles * TN + tl.arange(0, TN)
    k = tl.program_id(0) % tiles * TK + tl.arange(0, TK)
    start = tl.program_id(1) * piece
    count = tl.minimum(piece, M - start)
    grad += (replica * M + start) * N
    x += (replica * M + start) * K
    if KIND != "none":
        saved += (replica * M + start) * N
    m = tl.arange(0, TM)
    acc = tl.zeros((TN, TK), ACC)
    total = tl.zeros((TM, TN), ACC)
    next_left, next_right = load_rows(grad, saved, x, m, count, n, k, K, N, TN, TK, KIND)
    for first in tl.range(TM, count + TM, TM, num_stages=1):
        left, right = next_left, next_right
        next_left, next_right = load_rows(grad, saved, x, first + m, count, n, k, K, N, TN, TK, KIND)
        if BIAS:
            total += left
        acc += multiply_rows(left, right, NVIDIA, ACC)  # no chain, see `tensor_cores`
    place = tl.program_id(1) * tl.num_programs(2) + replica
    tl.store(weights + place * WEIGHT_ROW + n[:, None] * K + k[None, :], acc, mask=(n < N)[:, None] & (k < K)[None, :])
    if BIAS and tl.program_id(0) % tiles == 0:
        tl.store(biases + place * BIAS_ROW + n, tl.sum(total, axis=0), mask=n < N)


def map_rows(
    x: Tensor, saved: Tensor | None, weight: Tensor, bias: Tensor | None, *,
    slope: str, kind: str, keep: bool, transpose: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return the results (R, M, N), and with `keep` the argument of the activation.

    x (R, M, K), weight (R, N, K), or with `transpose` (R, K, N).
    """
    R, M, K = x.shape
    N = weight.shape[2 if transpose else 1]
    out = x.new_empty(R, M, N)
    before = torch.empty_like(out) if keep else None
    if out.numel():
        tile = KEPT if tile_side(K, KEPT.inputs) >= K else LOADED
        if transpose and tile is LOADED and M > MANY_ROWS:  # in this order they are faster to load
            weight, transpose = weight.transpose(1, 2).contiguous(), False
        columns = tile_side(N, tile.results)
        tiles, groups = triton.cdiv(M, tile.rows), triton.cdiv(N, columns)
        programs = tiles if tile is LOADED else min(tiles, max(1, PROGRAMS // (groups * R)))
        linear_product_kernel[(programs, groups, R)](
            x, saved, weight, bias, before, out, M, tiles,
            K=K, N=N, WK=N if transpose else 1, WN=1 if transpose else K,
            TM=tile.rows, TN=columns, TK=tile_side(K, tile.inputs), STAGES=tile.stages, SLOPE=slope, KIND=kind,
            **number_constants(x), num_warps=tile.warps,
        )  # fmt: skip
    return out, before


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, kind: str) -> tuple[Tensor, ...]:
    """Return y (R, M, N) for x (R, M, K), weight (R, N, K), bias (R, N); for gelu also its argument."""
    y, before = map_rows(x, None, weight, bias, slope="none", kind=kind, keep=kind == "gelu", transpose=False)
    return (y,) if before is None else (y, before)


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, *rest: Any
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, weight and bias; `rest` are the argument of gelu, if any, and the activation."""
    *before, kind = rest
    saved = before[0] if before else y
    if not x.numel() or not grad.numel():
        return torch.zeros_like(x), torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
    dx, _ = map_rows(grad, saved, weight, None, slope=kind, kind="none", keep=False, transpose=True)
    return dx, *weight_gradients(grad, saved, x, bias is not None, kind)


def weight_gradients(grad: Tensor, saved: Tensor, x: Tensor, has_bias: bool, kind: str) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of weight (R, N, K) and bias (R, N) for grad (R, M, N) and x (R, M, K)."""
    R, M, N = grad.shape
    K = x.shape[2]
    TN, TK = tile_side(N, GRADIENT.results), tile_side(K, GRADIENT.inputs)
    tiles = triton.cdiv(N, TN) * triton.cdiv(K, TK)
    pieces = max(1, min(PIECES // tiles, triton.cdiv(M, PIECE_ROWS)))
    piece = triton.cdiv(triton.cdiv(M, pieces), GRADIENT.rows) * GRADIENT.rows
    pieces = triton.cdiv(M, piece)
    parts = new_parts(x, pieces, R, N * K, N * has_bias)
    linear_weight_gradient_kernel[(tiles, pieces, R)](
        grad, saved, x, parts.heads, parts.rests, M, piece,
        K=K, N=N, TM=GRADIENT.rows, TN=TN, TK=TK, WEIGHT_ROW=parts.head_row, BIAS_ROW=parts.rest_row,
        BIAS=has_bias, KIND=kind, **number_constants(x), num_warps=GRADIENT.warps,
    )  # fmt: skip
    dweight, dbias = parts.sums()
    return dweight.view(R, N, K), dbias if has_bias else None


def tile_side(size: int, most: int) -> int:
    """Return the side of a tile: the size padded to a power of two, within what `tl.dot` accepts and `most`."""
    return max(SMALLEST, min(most, next_power_of_two(size)))


def number_constants(x: Tensor) -> dict[str, Any]:
    """Return the constants that depend on the dtype."""
    if x.dtype == torch.float64:
        return {"NVIDIA": False, "ACC": tl.float64}
    return {"NVIDIA": has_tensor_cores(x), "ACC": tl.float32}
