"""The tolerances for the difference to the reference: one table, independent of the environment.

An error is the largest absolute difference divided by the largest absolute value of the reference, or by FLOOR if that
is larger: some gradients are exactly zero in theory (a single entry, rescaled), but not after rounding.

A gradient that is zero in theory is a sum of terms that cancel, so its rounding error is relative to those terms and
not to zero. (A normalised mixture of 1 x 1 matrices is its sign, so the gradients of dictionary and weights are exactly
zero; where the mixture is nearly zero, the terms that cancel are of size 1e4 and leave a rounding error of 1e-12, in
the reference as well.) So if the largest entry of a reference gradient is below VANISHING times the largest gradient of
all inputs of the case, the error is divided by the latter. The error of every other gradient, however small, is
relative to its own size.
"""

from __future__ import annotations

import torch

#: dtype -> (states and final, gradients)
RELATIVE = {
    torch.float64: (1e-12, 1e-10),
    torch.complex128: (1e-12, 1e-10),
    torch.float32: (5e-5, 5e-4),
    torch.complex64: (5e-5, 5e-4),
    torch.bfloat16: (2e-2, 5e-2),
}

FLOOR = 1e-2
#: A reference gradient below this fraction of the largest gradient of its case is a rounding error of zero (float64).
VANISHING = 1e-12

#: Error of a float32 scan against the reference in float64, contractive inputs, L = 512 (in benchmarks/scan.py).
FLOAT32_AT_512 = 1e-5
