# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Linear maps on NVIDIA GPUs: one kernel forward; one for the gradient of x, one and a sum for that of the parameters.

The products run on tensor cores. A float32 number is the sum of two numbers with 11 significant bits, and three of the
four products of such sums are added in float32 (`tf32x3`), so that the error is that of plain float32.
(`tests/ops/test_linear.py` compares both with float64.) float64 numbers are multiplied as they are.

Bias and activation are applied to the sums in registers, and the derivative of the activation to gradients when they
are loaded. The gradients of weight and bias are sums over all rows: each piece of the rows stores a partial sum, and
the partial sums are added in an order that does not depend on the number of replicas.

Constants of the kernels: K entries of an input and N of a result, TM rows, TN results and TK inputs of a tile, WK and
WN the distances in memory of consecutive inputs and results in the weights, KIND the activation.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.activations import activation, activation_slope
from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops.padding import next_power_of_two

#: Sides of a tile: rows, results, inputs.
ROWS, RESULTS, INPUTS = 128, 64, 32
#: Rows that a program of the gradient of the weights loads at once, and the fewest rows of a piece.
GRADIENT_ROWS, PIECE_ROWS = 32, 256
#: The most pieces times tiles of weights, for one replica. It must not depend on the number of replicas.
PIECES = 64
#: The smallest side that `tl.dot` accepts.
SMALLEST = 16


@triton.jit
def load_gradient(grad, saved, offsets, mask, KIND: tl.constexpr):
    """Load a tile of the gradient of the activation's argument."""
    tile = tl.load(grad + offsets, mask=mask, other=0.0)
    if KIND != "none":
        tile *= activation_slope(tl.load(saved + offsets, mask=mask, other=0.0), KIND)
    return tile


@triton.jit(do_not_specialize=["M"])
def linear_product_kernel(
    x, saved, weight, bias, before, out, M,
    K: tl.constexpr, N: tl.constexpr, WK: tl.constexpr, WN: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
    SLOPE: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill out = activation(x W + bias), (R, M, N), and before, the argument of the activation, if it is given.

    With SLOPE, x is the gradient of such an activation: it is multiplied by the derivative, which `saved` gives.
    """
    replica = tl.program_id(1).to(tl.int64)
    tiles: tl.constexpr = (N + TN - 1) // TN
    m = tl.program_id(0) // tiles * TM + tl.arange(0, TM)
    n = tl.program_id(0) % tiles * TN + tl.arange(0, TN)
    m_mask = (m < M)[:, None]
    n_mask = (n < N)[None, :]
    rows = (replica * M + m)[:, None]
    acc = tl.zeros((TM, TN), ACC)
    for first in range(0, K, TK):
        k = first + tl.arange(0, TK)
        left = load_gradient(x, saved, rows * K + k[None, :], m_mask & (k < K)[None, :], SLOPE)
        places = replica * N * K + k[:, None] * WK + n[None, :] * WN
        right = tl.load(weight + places, mask=(k < K)[:, None] & n_mask, other=0.0)
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=ACC)
    if bias is not None:
        acc += tl.load(bias + replica * N + n, mask=n < N, other=0.0)[None, :]
    if before is not None:
        tl.store(before + rows * N + n[None, :], acc, mask=m_mask & n_mask)
    tl.store(out + rows * N + n[None, :], activation(acc, KIND), mask=m_mask & n_mask)


@triton.jit(do_not_specialize=["M", "piece"])
def linear_weight_gradient_kernel(
    grad, saved, x, parts, M, piece,
    K: tl.constexpr, N: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
    BIAS: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Store the partial sums of a piece of the rows: those of the weights (N, K), then those of the bias (N,)."""
    replica = tl.program_id(2).to(tl.int64)
    tiles: tl.constexpr = (K + TK - 1) // TK
    n = tl.program_id(0) // tiles * TN + tl.arange(0, TN)
    k = tl.program_id(0) % tiles * TK + tl.arange(0, TK)
    n_mask = n < N
    k_mask = k < K
    acc = tl.zeros((TN, TK), ACC)
    total = tl.zeros((TN,), ACC)
    start = tl.program_id(1) * piece
    end = tl.minimum(start + piece, M)
    for first in range(start, end, TM):
        m = first + tl.arange(0, TM)
        rows = (replica * M + m)[:, None]
        m_mask = (m < end)[:, None]
        left = load_gradient(grad, saved, rows * N + n[None, :], m_mask & n_mask[None, :], KIND)
        right = tl.load(x + rows * K + k[None, :], mask=m_mask & k_mask[None, :], other=0.0)
        if BIAS:
            total += tl.sum(left, axis=0)
        acc = tl.dot(tl.trans(left), right, acc, input_precision=PRECISION, out_dtype=ACC)
    row: tl.constexpr = N * K + N if BIAS else N * K
    base = parts + (tl.program_id(1) * tl.num_programs(2) + replica) * row
    tl.store(base + n[:, None] * K + k[None, :], acc, mask=n_mask[:, None] & k_mask[None, :])
    if BIAS and tl.program_id(0) % tiles == 0:
        tl.store(base + N * K + n, total, mask=n_mask)


def multiply(
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
        columns = tile_side(N, RESULTS)
        linear_product_kernel[(triton.cdiv(M, ROWS) * triton.cdiv(N, columns), R)](
            x, saved, weight, bias, before, out, M,
            K=K, N=N, WK=N if transpose else 1, WN=1 if transpose else K,
            TM=ROWS, TN=columns, TK=tile_side(K, INPUTS), SLOPE=slope, KIND=kind, **number_constants(x),
            num_warps=4, num_stages=3,
        )  # fmt: skip
    return out, before


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, kind: str) -> tuple[Tensor, ...]:
    """Return y (R, M, N) for x (R, M, K), weight (R, N, K), bias (R, N); for gelu also its argument."""
    y, before = multiply(x, None, weight, bias, slope="none", kind=kind, keep=kind == "gelu", transpose=False)
    return (y,) if before is None else (y, before)


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, *rest: Any
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, weight and bias; `rest` are the argument of gelu, if any, and the activation."""
    *before, kind = rest
    saved = before[0] if before else y
    R, M, N = grad.shape
    K = x.shape[2]
    if not x.numel() or not grad.numel():
        return torch.zeros_like(x), torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
    dx, _ = multiply(grad, saved, weight, None, slope=kind, kind="none", keep=False, transpose=True)
    TN, TK = tile_side(N, RESULTS), tile_side(K, RESULTS)
    tiles = triton.cdiv(N, TN) * triton.cdiv(K, TK)
    pieces = max(1, min(PIECES // tiles, triton.cdiv(M, PIECE_ROWS)))
    piece = triton.cdiv(triton.cdiv(M, pieces), GRADIENT_ROWS) * GRADIENT_ROWS
    pieces = triton.cdiv(M, piece)
    parts = x.new_empty(pieces, R, N * K + (0 if bias is None else N))
    linear_weight_gradient_kernel[(tiles, pieces, R)](
        grad, saved, x, parts, M, piece,
        K=K, N=N, TM=GRADIENT_ROWS, TN=TN, TK=TK, BIAS=bias is not None, KIND=kind, **number_constants(x),
        num_warps=4, num_stages=3,
    )  # fmt: skip
    dweight, dbias = sum_parts(parts, x.dtype, None if bias is None else N * K)
    return dx, dweight.view(weight.shape), dbias


def tile_side(size: int, most: int) -> int:
    """Return the side of a tile: the size padded to a power of two, within what `tl.dot` accepts and `most`."""
    return max(SMALLEST, min(most, next_power_of_two(size)))


def number_constants(x: Tensor) -> dict[str, Any]:
    """Return the constants that depend on the dtype."""
    if x.dtype == torch.float64:
        return {"PRECISION": "ieee", "ACC": tl.float64}
    return {"PRECISION": "tf32x3", "ACC": tl.float32}
