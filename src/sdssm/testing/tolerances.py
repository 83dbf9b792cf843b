"""How much two predictions that must be the same may differ by rounding: one table for all laws."""

from __future__ import annotations

import torch

#: The largest difference of two logits, relative to the largest logit, by the type of the numbers. A recurrent model
#: multiplies its own rounding errors, so float32 has a large margin; a model that breaks a law differs by far more.
RELATIVE_DIFFERENCE = {
    torch.float64: 1e-8,
    torch.float32: 1e-3,
    torch.bfloat16: 5e-2,
    torch.float16: 1e-2,
}


def allowed_difference(dtype: torch.dtype, largest: float) -> float:
    """Return the difference up to which two results count as the same.

    `largest` is the largest absolute value of the results.

    >>> allowed_difference(torch.float32, 20.0)
    0.02
    """
    return RELATIVE_DIFFERENCE.get(dtype, RELATIVE_DIFFERENCE[torch.float32]) * (largest or 1.0)
