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
