# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Normalised blocks on NVIDIA GPUs: one kernel forward and one backward, which computes the norms again.

Constants of the kernels: S rows and columns of a block, padded to SP, TB blocks of a program, P the exponent of the
norm, LARGEST whether a block is centred and divided by its largest column norm.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.padding import next_power_of_two

#: Entries of a program, if a block has no more.
ENTRIES = 256


@triton.jit
def power(x, exponent: tl.constexpr):
    """Return x^exponent for x >= 0; 0 for x = 0, even if the exponent is 0."""
    return tl.where(x == 0.0, 0.0, tl.exp2(tl.log2(tl.where(x == 0.0, 1.0, x)) * exponent))


@triton.jit
def load_normalised(A, places, mask, S: tl.constexpr, P: tl.constexpr, LARGEST: tl.constexpr):
    """Return the normalised blocks (TB, SP, SP), their divisors, and the derivatives of these by the column norms.

    Divisors are (TB, 1, SP), the same for all columns with LARGEST, and so are the derivatives.
    """
    block = tl.load(A + places, mask=mask, other=0.0)
    if LARGEST:
        block = tl.where(mask, block - tl.sum(block, axis=1, keep_dims=True) / S, 0.0)
    norms = power(tl.sum(power(tl.abs(block), P), axis=1, keep_dims=True), 1.0 / P)
    if LARGEST:
        largest = tl.max(norms, axis=2, keep_dims=True)
        slopes = tl.where((norms == largest) & (norms > 0.0), 1.0, 0.0)
        slopes = slopes / tl.maximum(tl.sum(slopes, axis=2, keep_dims=True), 1.0)
        divisors = tl.where(largest == 0.0, 1.0, largest) + tl.zeros_like(norms)
    else:
        slopes = tl.where(norms >= 1.0, 1.0, 0.0)
        divisors = tl.maximum(norms, 1.0, propagate_nan=tl.PropagateNan.ALL)
    return block / divisors, divisors, slopes


@triton.jit
def block_places(count, S: tl.constexpr, SP: tl.constexpr, TB: tl.constexpr):
    """Return the places of the entries of this program in memory, (TB, SP, SP), and which of them exist."""
    block = tl.program_id(0).to(tl.int64) * TB + tl.arange(0, TB)
    at = tl.arange(0, SP)
    places = (block[:, None, None] * S + at[None, :, None]) * S + at[None, None, :]
    return places, (block < count)[:, None, None] & (at < S)[None, :, None] & (at < S)[None, None, :]


@triton.jit(do_not_specialize=["count"])
def blocks_forward_kernel(
    A, normal, count, S: tl.constexpr, SP: tl.constexpr, TB: tl.constexpr, P: tl.constexpr, LARGEST: tl.constexpr
):
    """Fill normal (count, S, S)."""
    places, mask = block_places(count, S, SP, TB)
    values, _, _ = load_normalised(A, places, mask, S, P, LARGEST)
    tl.store(normal + places, values, mask=mask)


@triton.jit(do_not_specialize=["count"])
def blocks_backward_kernel(
    grad, A, dA, count, S: tl.constexpr, SP: tl.constexpr, TB: tl.constexpr, P: tl.constexpr, LARGEST: tl.constexpr
):
    """Fill dA (count, S, S).

    The derivative of a column norm that divides is sign(y) |y|^(p - 1) at the normalised entries y.
    """
    places, mask = block_places(count, S, SP, TB)
    y, divisors, slopes = load_normalised(A, places, mask, S, P, LARGEST)
    g = tl.load(grad + places, mask=mask, other=0.0)
    products = tl.sum(g * y, axis=1, keep_dims=True)
    if LARGEST:
        products = tl.sum(products, axis=2, keep_dims=True)
    sizes = power(tl.abs(y), P - 1.0)
    result = (g - products * slopes * tl.where(y < 0.0, -sizes, sizes)) / divisors
    if LARGEST:
        result -= tl.sum(tl.where(mask, result, 0.0), axis=1, keep_dims=True) / S
    tl.store(dA + places, result, mask=mask)


def kernel_constants(A: Tensor, p: float, by: str) -> dict[str, Any]:
    """Return the constants of the kernels."""
    S = A.shape[-1]
    SP = next_power_of_two(S)
    warps = max(1, min(8, SP * SP // 256))
    return {
        "S": S, "SP": SP, "TB": max(1, ENTRIES // (SP * SP)), "P": p, "LARGEST": by == "largest", "num_warps": warps
    }  # fmt: skip


def forward(A: Tensor, p: float, by: str) -> tuple[Tensor]:
    """Return the normalised blocks (R, M, S, S)."""
    normal, constants = torch.empty_like(A), kernel_constants(A, p, by)
    count = A.shape[0] * A.shape[1]
    if count:
        blocks_forward_kernel[(triton.cdiv(count, constants["TB"]),)](A, normal, count, **constants)
    return (normal,)


def backward(grad: Tensor, A: Tensor, normal: Tensor, p: float, by: str) -> tuple[Tensor]:
    """Return the gradient of A."""
    dA, constants = torch.empty_like(A), kernel_constants(A, p, by)
    count = A.shape[0] * A.shape[1]
    if count:
        blocks_backward_kernel[(triton.cdiv(count, constants["TB"]),)](grad, A, dA, count, **constants)
    return (dA,)
