"""The filter of Hyena in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def taps(
    features: Tensor,
    window: Tensor,
    frequency: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    weight3: Tensor,
    bias3: Tensor,
    last: Tensor,
    length: int,
) -> Tensor:
    """Return K (D, length), see `implicit_taps`."""
    x = features[:length]
    for weight, bias in ((weight1, bias1), (weight2, bias2), (weight3, bias3)):
        x = torch.sin(frequency * (x @ weight.mT + bias))
    return (x @ last.mT * window[:length]).mT
