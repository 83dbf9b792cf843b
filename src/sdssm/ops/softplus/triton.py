# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Softplus of a linear map on NVIDIA GPUs: one kernel forward, one kernel and a sum backward.

A program takes a tile of rows with all of their inputs and outputs. The backward kernel computes the argument of
softplus again, which takes few products. The gradients of weight and bias are sums over all rows: each tile stores
partial sums, which are added in an order that does not depend on the number of replicas.

Constants of the kernels: K inputs, D outputs padded to DP, TR rows of a tile.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import sum_parts
from sdssm.ops.padding import next_power_of_two

#: Entries of a tile of outputs in float32, forward and backward: the larger a tile, the fewer partial sums are stored.
FORWARD_ENTRIES, BACKWARD_ENTRIES = 2048, 8192


@triton.jit
def load_tile(r, weight, bias, replica, row, row_mask, rows, K: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):
    """Return the arguments of softplus, (TR, DP)."""
    d = tl.arange(0, DP)
    z = tl.load(bias + replica * D + d, mask=d < D, other=0.0)[None, :]
    for k in tl.static_range(K):
        r_k = tl.load(r + (replica * rows + row) * K + k, mask=row_mask, other=0.0)
        z += r_k[:, None] * tl.load(weight + (replica * D + d) * K + k, mask=d < D, other=0.0)[None, :]
    return z


@triton.jit
def softplus(z):
    """Return log(1 + exp(z)), accurate where it is small.

    log(1 + u) = u log(w) / (w - 1) with w = 1 + u rounded, since the rounding of w cancels.
    """
    u = tl.exp(-tl.abs(z))
    w = 1.0 + u
    logarithm = tl.where(w == 1.0, u, tl.log(w) * (u / tl.where(w == 1.0, 1.0, w - 1.0)))
    return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + logarithm


@triton.jit(do_not_specialize=["rows"])
def softplus_forward_kernel(
    r, weight, bias, y, rows, K: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr
):
    """Fill y (R, rows, D)."""
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    row_mask = row < rows
    z = load_tile(r, weight, bias, replica, row, row_mask, rows, K, D, DP)
    d = tl.arange(0, DP)
    tl.store(
        y + (replica * rows + row)[:, None] * D + d[None, :], softplus(z), mask=row_mask[:, None] & (d < D)[None, :]
    )


@triton.jit(do_not_specialize=["rows"])
def softplus_backward_kernel(
    grad, r, weight, bias, dr, partials, rows, K: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr
):
    """Fill the gradient of r, and the partial sums (tiles, R, K + 1, D) for weight, transposed, and bias."""
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    row_mask = row < rows
    d = tl.arange(0, DP)
    z = load_tile(r, weight, bias, replica, row, row_mask, rows, K, D, DP)
    mask = row_mask[:, None] & (d < D)[None, :]
    dz = tl.load(grad + (replica * rows + row)[:, None] * D + d[None, :], mask=mask, other=0.0) * tl.sigmoid(z)
    pointers = partials + (tl.program_id(0) * tl.num_programs(1) + replica) * (K + 1) * D + d
    for k in tl.static_range(K):
        w_k = tl.load(weight + (replica * D + d) * K + k, mask=d < D, other=0.0)
        tl.store(dr + (replica * rows + row) * K + k, tl.sum(dz * w_k[None, :], axis=1), mask=row_mask)
        r_k = tl.load(r + (replica * rows + row) * K + k, mask=row_mask, other=0.0)
        tl.store(pointers + k * D, tl.sum(dz * r_k[:, None], axis=0), mask=d < D)
    tl.store(pointers + K * D, tl.sum(dz, axis=0), mask=d < D)


def kernel_constants(K: int, D: int, dtype: torch.dtype, entries: int) -> dict[str, Any]:
    """Return the compile-time constants of the kernels; none of them depends on the number of replicas."""
    DP = next_power_of_two(D)
    return {"K": K, "D": D, "DP": DP, "TR": max(1, entries * 4 // dtype.itemsize // DP), "num_warps": 4}


def forward(r: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor]:
    """Return y (R, B, D) for r (R, B, K), weight (R, D, K), bias (R, D)."""
    (R, rows, K), D = r.shape, weight.shape[1]
    constants = kernel_constants(K, D, r.dtype, FORWARD_ENTRIES)
    y = r.new_empty(R, rows, D)
    if y.numel():
        softplus_forward_kernel[(triton.cdiv(rows, constants["TR"]), R)](r, weight, bias, y, rows, **constants)
    return (y,)


def backward(grad: Tensor, r: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of r, weight and bias."""
    (R, rows, K), D = r.shape, weight.shape[1]
    if not grad.numel():
        return torch.zeros_like(r), torch.zeros_like(weight), torch.zeros_like(bias)
    constants = kernel_constants(K, D, r.dtype, BACKWARD_ENTRIES)
    tiles = triton.cdiv(rows, constants["TR"])
    dr, partials = torch.empty_like(r), r.new_empty(tiles, R, (K + 1) * D)
    softplus_backward_kernel[(tiles, R)](grad, r, weight, bias, dr, partials, rows, **constants)
    dweight, dbias = sum_parts(partials, r.dtype, K * D)
    assert dbias is not None
    return dr, dweight.view(R, K, D).mT, dbias
