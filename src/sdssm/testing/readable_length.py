"""The longest string that a model reads without an error, where it does not say so itself."""

from __future__ import annotations

import torch

from sdssm.models import TokenModel
from sdssm.models.modes import evaluation_mode


def find_readable_length(model: TokenModel, longest: int) -> int:
    """Return the greatest length up to `longest` of a string that a model reads without an error; 0 if there is none.

    It is searched by bisection: a model that reads a string is expected to read all shorter ones.

    >>> from sdssm.models import wrap_module
    >>> class FewPositions(torch.nn.Embedding):
    ...     def forward(self, tokens):
    ...         return super().forward(tokens) + torch.zeros(50, 2)[torch.arange(tokens.shape[1])]
    >>> find_readable_length(wrap_module(FewPositions(2, 2), n_symbols=2, n_classes=2), 500)
    50
    """
    longest = longest if model.longest is None else min(longest, model.longest)
    if _is_readable(model, longest):
        return longest
    known, too_long = 0, longest
    while too_long - known > 1:
        middle = (known + too_long) // 2
        if _is_readable(model, middle):
            known = middle
        else:
            too_long = middle
    return known


def _is_readable(model: TokenModel, length: int) -> bool:
    tokens = torch.zeros(1, length, dtype=torch.long, device=model.device)
    starts = None if model.settings.state_embedding is None else tokens[:, 0]
    try:
        with evaluation_mode(model), torch.no_grad():
            model.last_logits(tokens, starts=starts)
    except Exception:  # someone else's code may raise anything
        return False
    return True
