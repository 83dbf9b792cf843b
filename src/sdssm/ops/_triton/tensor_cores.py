# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Products of float32 matrices by tensor cores, with the precision of float32.

Tensor cores read 19 of the 32 bits of a float32: its sign, its exponent and 10 bits behind the point. A factor is split
into the number that these are and the rest, and three products of such parts, all but rest x rest, make up the product
(an error of about 2^-21). `tl.dot` does the same if it is asked for "tf32x3"; here a factor that is used twice is split
once, and infinite entries become NaN, which saves a quarter of the instructions.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: A mask of the bits that tensor cores read.
HIGH_BITS = tl.constexpr(-(1 << 13))


@triton.jit
def split(x, NVIDIA: tl.constexpr):
    """Return the number that tensor cores read from each entry, and the rest; without NVIDIA all and nothing."""
    if NVIDIA:
        high = (x.to(tl.int32, bitcast=True) & HIGH_BITS).to(tl.float32, bitcast=True)
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
