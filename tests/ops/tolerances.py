"""How far an implementation may be from the reference: the one table, and no environment loosens it.

An error is the largest absolute difference divided by the largest absolute value of the reference, or by FLOOR where
that is smaller: some gradients are exactly zero (one entry, rescaled), and rounding is not.
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

#: The same float32 scan against the reference in float64, contractive inputs, L = 512 (reported by benchmarks/scan.py).
FLOAT32_AT_512 = 1e-5
