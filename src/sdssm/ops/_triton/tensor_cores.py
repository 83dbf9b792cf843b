# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Products of float32 matrices by tensor cores, with the precision of float32.

Tensor cores read 19 of the 32 bits of a float32: its sign, its exponent and 10 bits behind the point. A factor is split
into the number that these are and the rest, and three products of such parts, all but rest x rest, make up the product
(an error of about 2^-21). `tl.dot` does the same if it is asked for "tf32x3"; here a factor that is used twice is split
once, and infinite entries become NaN, which saves a quarter of the instructions.

Hopper reads such factors from shared memory only if the entries that are summed over are adjacent there. If they are
not, 32-bit entries are transposed one by one. Factors of 16 bits can be read either way, so a product of transposed
factors splits each into three bfloat16, which are exact together, and adds six products, in the same time.

Tensor cores do not round the sums that they keep, they cut them off. So a product here starts from zero, and a kernel
that sums over more than 64 entries, or 32 rows, adds the products outside of tensor cores: `acc += multiply(...)`.
A chain of `tl.dot(..., acc)` over 256 entries has six times the error of float32 (measured on an H200).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.source import has_tensor_cores

#: A mask of the bits that tensor cores read.
HIGH_BITS = tl.constexpr(-(1 << 13))
#: Half of the last of them.
HALF_BIT = tl.constexpr(1 << 12)
#: A mask of the bits of a float32 that are a bfloat16.
HIGH_HALF = tl.constexpr(-(1 << 16))


@triton.jit
def split(x, NVIDIA: tl.constexpr):
    """Return the number that tensor cores read from each entry, and the rest; without NVIDIA all and nothing."""
    if NVIDIA:
        high = (x.to(tl.int32, bitcast=True) & HIGH_BITS).to(tl.float32, bitcast=True)
        return high, x - high
    else:
        return x, x


@triton.jit
def split_nearest(x, NVIDIA: tl.constexpr):
    """Return the same as `split` with the first number rounded to nearest, for one more instruction.

    If one factor of a product is split like this, the error of the product is halved.
    """
    if NVIDIA:
        high = ((x.to(tl.int32, bitcast=True) + HALF_BIT) & HIGH_BITS).to(tl.float32, bitcast=True)
        return high, x - high
    else:
        return x, x


@triton.jit
def multiply(left, left_rest, right, right_rest, NVIDIA: tl.constexpr, ACC: tl.constexpr):
    """Return the product of two factors that were split, with the precision of ACC."""
    if NVIDIA:
        product = tl.dot(left_rest, right, input_precision="tf32", out_dtype=ACC)
        product = tl.dot(left, right_rest, product, input_precision="tf32", out_dtype=ACC)
        return tl.dot(left, right, product, input_precision="tf32", out_dtype=ACC)
    else:
        return tl.dot(left, right, input_precision="ieee", out_dtype=ACC)


@triton.jit
def high_half(x):
    """Return the high half of float32 numbers as bfloat16."""
    return (x.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def split_in_three(x, NVIDIA: tl.constexpr):
    """Return three bfloat16 numbers whose sum is x; without NVIDIA x three times."""
    if NVIDIA:
        rest = x - (x.to(tl.int32, bitcast=True) & HIGH_HALF).to(tl.float32, bitcast=True)
        low = rest - (rest.to(tl.int32, bitcast=True) & HIGH_HALF).to(tl.float32, bitcast=True)
        return high_half(x), high_half(rest), high_half(low)
    else:
        return x, x, x


@triton.jit
def multiply_rows(left, right, NVIDIA: tl.constexpr, ACC: tl.constexpr):
    """Return left^T right, with the precision of ACC, for left (K, M) and right (K, N)."""
    left0, left1, left2 = split_in_three(left, NVIDIA)
    right0, right1, right2 = split_in_three(right, NVIDIA)
    if NVIDIA:
        product = tl.dot(tl.trans(left2), right0, out_dtype=ACC)
        product = tl.dot(tl.trans(left1), right1, product, out_dtype=ACC)
        product = tl.dot(tl.trans(left0), right2, product, out_dtype=ACC)
        product = tl.dot(tl.trans(left1), right0, product, out_dtype=ACC)
        product = tl.dot(tl.trans(left0), right1, product, out_dtype=ACC)
        return tl.dot(tl.trans(left0), right0, product, out_dtype=ACC)
    else:
        return tl.dot(tl.trans(left), right, input_precision="ieee", out_dtype=ACC)


@triton.jit
def reordered(x):
    """Return x with the columns of each group of eight in the order 0, 2, 4, 6, 1, 3, 5, 7.

    A thread that has columns 2 t and 2 t + 1 of a product then has columns t and t + 4, which are those that it needs
    of a left factor. So a product becomes the left factor of the next one without an exchange between threads.
    """
    groups: tl.constexpr = x.shape[1] // 8
    by_thread = tl.reshape(x, (x.shape[0], groups, 4, 2))
    return tl.reshape(tl.permute(by_thread, (0, 1, 3, 2)), (x.shape[0], x.shape[1]))


@triton.jit
def multiply_transposed(left, left_rest, right, right_rest, NVIDIA: tl.constexpr, ACC: tl.constexpr):
    """Return left right^T for two factors that were split; the left one may be a product."""
    if NVIDIA:
        left, left_rest = reordered(left), reordered(left_rest)
        right, right_rest = reordered(right), reordered(right_rest)
    return multiply(left, left_rest, tl.trans(right), tl.trans(right_rest), NVIDIA, ACC)


def product_constants(x: Tensor) -> dict[str, Any]:
    """Return precision and dtype of sums for kernels that leave it to `tl.dot` to split factors."""
    is_float64 = x.dtype == torch.float64
    splits = has_tensor_cores(x) and not is_float64
    return {"PRECISION": "tf32x3" if splits else "ieee", "ACC": tl.float64 if is_float64 else tl.float32}
