"""Rows of a table for strings that are read from their ends on, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.checks import check_range
from sdssm.ops.prepare import check_length_values


def select_reversed_rows(table: Tensor, tokens: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the rows of a table (V, F) for strings (B, L) from their ends on, (B, L, F), and whether they exist.

    The second result is (B, L, 1). Rows before the start of a string are zero.

    >>> rows, inside = select_reversed_rows(torch.tensor([[5.0], [7.0]]), torch.tensor([[0, 1]]), torch.tensor([1]))
    >>> rows.flatten().tolist(), inside.flatten().tolist()
    ([5.0, 0.0], [True, False])
    """
    length = tokens.shape[1]
    ends = torch.full_like(tokens[:, 0], length) if lengths is None else lengths
    places = ends[:, None] - 1 - torch.arange(length, device=tokens.device)
    inside = (places >= 0)[..., None]
    rows = table[tokens.gather(1, places.clamp(min=0))]
    return torch.where(inside, rows, rows.new_zeros(())), inside


def check_strings(op: str, tokens: Tensor, lengths: Tensor | None, symbols: int) -> None:
    """Check that tokens (..., L) are below the number of symbols, and lengths at most L; compiled loops trust them."""
    check_range(op, "tokens", tokens, 0, symbols - 1, f"the table has {symbols} rows, so tokens are")
    check_length_values(op, lengths, tokens.shape[-1])
