"""How far an implementation may be from the reference: the one table, and no environment loosens it.

An error is the largest absolute difference divided by the largest absolute value of the reference, or by FLOOR where
that is smaller: some gradients are exactly zero (one entry, rescaled), and rounding is not.

A gradient that is zero in theory is a sum of terms that cancel, and what rounding leaves of it is relative to those
terms and not to zero. (A normalised mixture of 1 x 1 matrices is its sign, so the gradients of dictionary and weights
are exactly zero; where the mixture is nearly zero, the terms that cancel are of size 1e4 and leave 1e-12 of rounding,
in the reference as well.) So where the largest entry of a reference gradient is below VANISHING of the largest gradient
among all inputs of the case, the error is divided by the latter. Every other gradient, however small, is judged by its
own size.
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
#: A reference gradient smaller than this, of the largest gradient of its case, is what rounding left of zero (float64).
VANISHING = 1e-12

#: The same float32 scan against the reference in float64, contractive inputs, L = 512 (reported by benchmarks/scan.py).
FLOAT32_AT_512 = 1e-5
