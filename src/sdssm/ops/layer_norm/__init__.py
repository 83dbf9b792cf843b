"""LayerNorm: one kernel on a GPU, and at most two for its gradient, for several replicas as well."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import as_one_replica
from sdssm.ops.residual import LARGEST_WIDTH

OPERATION = DifferentiableOperation(
    "layer_norm",
    "layer_norm",
    tensors=("x", "gain", "shift"),
    differentiable=("x", "gain", "shift"),
    results=("y",),
    unsaved_results=("y",),
)


def layer_norm(x: Tensor, gain: Tensor | None = None, shift: Tensor | None = None, *, epsilon: float = 1e-5) -> Tensor:
    """Compute (x - mean) / sqrt(variance + epsilon) gain + shift for vectors x (..., D), gain (D,) and shift (D,).

    torch's own operation is several kernels for replicas with parameters of their own, and more for its gradient.

    >>> import torch
    >>> layer_norm(torch.tensor([[1.0, 3.0]]), torch.tensor([1.0, 2.0])).round().tolist()
    [[-1.0, 2.0]]
    """
    check_rank("layer_norm", "x", x, ("D",))
    width = x.shape[-1]
    if any(vector is not None and vector.shape != (width,) for vector in (gain, shift)):
        shapes = ", ".join(format_shape(tensor) for tensor in (x, gain, shift) if tensor is not None)
        raise OpsError(f"layer_norm: the shapes {shapes} do not fit; pass x (..., D), gain (D,), shift (D,)")
    dtypes = {tensor.dtype for tensor in (x, gain, shift) if tensor is not None}
    if not backend.has_kernels(x) or len(dtypes) > 1 or width > LARGEST_WIDTH:
        return functional.layer_norm(x, (width,), gain, shift, epsilon)
    (y,) = OPERATION(x.reshape(1, -1, width).contiguous(), *as_one_replica(gain, shift), epsilon, "triton")
    return y.reshape(x.shape)
