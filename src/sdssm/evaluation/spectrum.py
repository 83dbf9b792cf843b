"""The spectral radii of a model's transition matrices."""

from __future__ import annotations

import torch
from torch import Tensor


def spectral_radii(matrices: Tensor) -> list[float]:
    """Return the largest absolute eigenvalue of each matrix: (V, N, N) -> V numbers.

    The radius of a matrix with an infinite or NaN entry is NaN. A state that is never rescaled stays bounded over all
    strings only if no radius exceeds 1.

    >>> rotation, contraction = [[0.0, -2.0], [2.0, 0.0]], [[0.5, 9.0], [0.0, 0.25]]
    >>> [round(radius, 3) for radius in spectral_radii(torch.tensor([rotation, contraction]))]
    [2.0, 0.5]
    """
    finite = matrices.isfinite().all(-1).all(-1)  # (V,)
    finite_matrices = torch.where(finite[:, None, None], matrices, torch.zeros_like(matrices)).double().cpu()
    radii = torch.linalg.eigvals(finite_matrices).abs().amax(-1)
    return torch.where(finite.cpu(), radii, torch.full_like(radii, torch.nan)).tolist()
