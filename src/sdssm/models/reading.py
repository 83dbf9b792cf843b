"""Read strings with a model for a while: in evaluation mode, without gradients, and without checking the symbols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sdssm import ops
from sdssm.models.modes import evaluation_mode
from sdssm.models.token_model import TokenModel
from sdssm.models.wrapped_module import WrappedModule


@contextmanager
def reading_mode(model: TokenModel) -> Iterator[None]:
    """Disable gradients, dropout and the check of symbols inside the block; the symbols must be valid."""
    # A tensor of the inference mode that someone else's module keeps, such as a mask, could not be used in training.
    without_gradients = torch.no_grad() if isinstance(model, WrappedModule) else torch.inference_mode()
    with evaluation_mode(model), without_gradients, ops.unchecked():
        yield
