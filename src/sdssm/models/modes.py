"""Evaluation mode for a while: every part of a module gets its own mode back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch a module to evaluation mode inside the block; afterwards each part has the mode that it had before.

    >>> module = nn.Sequential(nn.Linear(1, 1), nn.Dropout().eval())
    >>> with evaluation_mode(module):
    ...     module.training
    False
    >>> module.training, module[1].training
    (True, False)
    """
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, is_training in modes.items():
            part.training = is_training
