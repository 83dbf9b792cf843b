"""The filter of Hyena in plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def taps(
    features: Tensor,
    window: Tensor,
    frequency: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    last: Tensor,
    length: int,
) -> Tensor:
    """Return K (D, length), see `implicit_taps`."""
    x = features[:length]
    for weight, bias in layers:
        x = torch.sin(frequency * (x @ weight.mT + bias))
    return (x @ last.mT * window[:length]).mT
