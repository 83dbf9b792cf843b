"""Linear maps of vectors, with a bias and an activation.

On a GPU the map is one kernel and its gradient a few, with the products on tensor cores. Elsewhere it is a product, a
sum and an activation of torch.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.errors import did_you_mean
from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import as_one_replica
from sdssm.ops.linear import reference

OPERATION = DifferentiableOperation(
    "linear_map",
    "linear",
    tensors=("x", "weight", "bias"),
    differentiable=("x", "weight", "bias"),
    results=("y",),
)


def linear_map(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """Apply a linear map to vectors, then an activation: x (..., D), weight (F, D), bias (F,) -> (..., F).

    Args:
        x: Inputs (..., D).
        weight: (F, D).
        bias: (F,); None is zero.
        activation: "none", "relu" or "gelu".

    >>> import torch
    >>> linear_map(torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0]]), torch.ones(1)).tolist()
    [12.0]
    >>> linear_map(torch.tensor([1.0]), torch.tensor([[3.0], [-4.0]]), activation="relu").tolist()
    [3.0, 0.0]
    """
    if activation not in reference.ACTIVATIONS:
        raise OpsError(f"linear_map: activation is {activation!r}; {did_you_mean(activation, reference.ACTIVATIONS)}")
    check_rank("linear_map", "weight", weight, ("F", "D"))
    if x.shape[-1:] != weight.shape[-1:] or (bias is not None and bias.shape != weight.shape[:1]):
        shapes = [format_shape(tensor) for tensor in (x, weight, *(() if bias is None else (bias,)))]
        raise OpsError(
            f"linear_map: the shapes {', '.join(shapes)} do not fit; pass x (..., D), weight (F, D), bias (F,)"
        )
    chosen = backend.choose(x)
    if chosen != "triton" or _is_torchs(x, weight, bias):
        return reference.apply(x, weight, bias, activation)
    flat = x.reshape(1, -1, x.shape[-1]).contiguous()
    (y,) = OPERATION(flat, *as_one_replica(weight, bias), activation, chosen)
    return y.reshape(*x.shape[:-1], len(weight))


def _is_torchs(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether torch computes the map: for 16-bit numbers, mixed dtypes, autocast, and in compiled code."""
    dtypes = {tensor.dtype for tensor in (x, weight, bias) if tensor is not None}
    return len(dtypes) > 1 or backend.uses_reference("triton", x) or backend.is_autocast_enabled(x)
