"""Rows of a table as a product with one-hot vectors, whose gradient is a product as well."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.products import product


def table_rows(table: Tensor, tokens: Tensor) -> Tensor:
    """Return rows (..., F) for table (V, F) and tokens (...)."""
    one_hot = (tokens[..., None] == torch.arange(len(table), device=tokens.device)).to(table.dtype)
    return product(one_hot, table)
