"""Dropout with given random numbers: one kernel on a GPU, and one for its gradient."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.residual.reference import apply_dropout

OPERATION = DifferentiableOperation(
    "dropout",
    "dropout",
    tensors=("x", "noise"),
    differentiable=("x",),
    results=("y",),
    unsaved_results=("y",),
)


def dropout(x: Tensor, noise: Tensor | None, rate: float) -> Tensor:
    """Set the entries of x to 0 whose noise is below the rate, and divide the others by 1 - rate.

    `noise` are uniform random numbers on [0, 1) in the shape of x; None: no dropout.

    >>> import torch
    >>> dropout(torch.tensor([1.0, 2.0]), torch.tensor([0.1, 0.7]), 0.5).tolist()
    [0.0, 4.0]
    """
    if noise is None:
        return x
    if noise.shape != x.shape:
        raise OpsError(f"dropout: noise has shape {format_shape(noise)} and x {format_shape(x)}; pass equal shapes")
    if not backend.has_kernels(x):
        return apply_dropout(x, rate, noise)
    (y,) = OPERATION(x.reshape(1, -1).contiguous(), noise.reshape(1, -1).contiguous(), rate, "triton")
    return y.reshape(x.shape)
