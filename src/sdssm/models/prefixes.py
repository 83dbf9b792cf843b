"""The features of a model after some prefixes of each string."""

from __future__ import annotations

import torch
from torch import Tensor


def select_prefixes(features: Tensor, ends: Tensor) -> Tensor:
    """Return the features after prefixes: features (B, L, F) after every symbol, ends (B, P) -> (B, P, F).

    A product with zeros and ones: the gradient of an index would add up with atomic operations on a GPU, whose sums
    differ from run to run.
    """
    positions = torch.arange(1, features.shape[1] + 1, device=features.device)
    is_end = (ends[..., None] == positions).to(features.dtype)  # (B, P, L)
    return is_end @ features
