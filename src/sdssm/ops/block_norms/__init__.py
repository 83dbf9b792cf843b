"""Blocks of matrices, normalised by the l_p norms of their columns."""

from __future__ import annotations

from torch import Tensor

from sdssm.errors import did_you_mean
from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.block_norms import reference
from sdssm.ops.checks import check_dtypes, check_rank, check_square
from sdssm.ops.errors import OpsError
from sdssm.ops.precision import call_in_float32

OPERATION = DifferentiableOperation(
    "normalised_blocks", "block_norms", tensors=("A",), differentiable=("A",), results=("normal",)
)
#: The largest block of the Triton kernels, whose programs hold at least one whole block.
LARGEST_BLOCK = 64


def normalised_blocks(A: Tensor, p: float, by: str = "largest") -> Tensor:
    """Divide square blocks by the l_p norms of their columns: A (..., S, S) -> (..., S, S).

    Args:
        A: (..., S, S), with real numbers.
        p: The exponent of the norm, at least 1.
        by: "largest" subtracts the mean of each column, then divides the block by the largest norm of its columns; a
            block of zeros stays zero. "columns" divides each column by max(1, its norm).

    >>> import torch
    >>> A = torch.tensor([[3.0, 1.0], [1.0, 1.0]])
    >>> normalised_blocks(A, 1.0).tolist(), normalised_blocks(A, 1.0, "columns").tolist()
    ([[0.5, 0.0], [-0.5, 0.0]], [[0.75, 0.5], [0.25, 0.5]])
    """
    op = "normalised_blocks"
    check_rank(op, "A", A, ("S", "S"))
    check_square(op, "A", A)
    check_dtypes(op, [("A", A)])
    if by not in reference.KINDS:
        raise OpsError(f"{op}: by is {by!r}; {did_you_mean(by, reference.KINDS)}")
    if not 1 <= p < float("inf"):
        raise OpsError(f"{op}: p is {p}; it must be finite and at least 1")
    backend.check_backend(op, A, 1)
    chosen = backend.choose(A)
    if uses_reference(chosen, A) or (chosen == "triton" and A.shape[-1] > LARGEST_BLOCK):
        (normal,) = call_in_float32(reference.normalised_blocks, A, p, by)
        return normal
    (normal,) = OPERATION(A.reshape(1, -1, *A.shape[-2:]).contiguous(), float(p), by, chosen)
    return normal.reshape(A.shape)
