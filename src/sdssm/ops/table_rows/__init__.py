"""Rows of a small table, one for each symbol of many strings.

On a GPU they are read in one kernel, and the gradient of the table is a sum over the positions of each symbol, in a
fixed order. Elsewhere it is a product with one-hot vectors.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.table_rows import reference

OPERATION = DifferentiableOperation(
    "table_rows",
    "table_rows",
    tensors=("table", "tokens"),
    differentiable=("table",),
    results=("rows",),
    unsaved_results=("rows",),
)


def table_rows(table: Tensor, tokens: Tensor) -> Tensor:
    """Select rows of a table: table (V, F), tokens (...) -> (..., F); zeros for a token outside of 0..V-1.

    >>> import torch
    >>> table_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0, 1])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    if not backend.has_kernels(table):
        return reference.table_rows(table, tokens)
    (rows,) = OPERATION(table[None].contiguous(), tokens.reshape(1, -1).long().contiguous(), "triton")
    return rows.reshape(*tokens.shape, table.shape[1])
