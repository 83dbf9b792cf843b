"""How far a model's matrices stretch or shrink its state."""

from __future__ import annotations

import torch
from torch import Tensor


def spectral_radii(matrices: Tensor) -> list[float]:
    """The largest absolute eigenvalue of each matrix: (V, N, N) -> V numbers, NaN where an entry is not finite.

    A state that is never rescaled stays bounded over every string only if none exceeds 1.

    >>> turn, shrink = [[0.0, -2.0], [2.0, 0.0]], [[0.5, 9.0], [0.0, 0.25]]
    >>> [round(radius, 3) for radius in spectral_radii(torch.tensor([turn, shrink]))]
    [2.0, 0.5]
    """
    finite = matrices.isfinite().all(-1).all(-1)  # (V,)
    whole = torch.where(finite[:, None, None], matrices, torch.zeros_like(matrices)).double().cpu()
    radii = torch.linalg.eigvals(whole).abs().amax(-1)
    return torch.where(finite.cpu(), radii, torch.full_like(radii, torch.nan)).tolist()
