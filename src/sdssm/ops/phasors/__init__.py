"""Complex numbers of a given absolute value, from numbers of any absolute value."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.phasors import reference
from sdssm.ops.precision import call_in_float32

OPERATION = DifferentiableOperation(
    "unit_phasors", "phasors", tensors=("raw",), differentiable=("raw",), results=("a",)
)


def unit_phasors(raw: Tensor, radius: float = 1.0) -> Tensor:
    """Divide complex numbers w by |w| and multiply them by the radius.

    Zero has phase 0 and no gradient. Squares of the parts neither overflow nor underflow.

    Args:
        raw: The real parts, then the imaginary parts, (..., 2 N).
        radius: The absolute value of the results.

    Returns:
        Real and imaginary part of each, (..., N, 2).

    >>> import torch
    >>> unit_phasors(torch.tensor([3.0, 0.0, 4.0, 0.0])).tolist()
    [[0.6000000238418579, 0.800000011920929], [1.0, 0.0]]
    """
    op = "unit_phasors"
    check_rank(op, "raw", raw, ("2 N",))
    check_dtypes(op, [("raw", raw)])
    if raw.shape[-1] % 2:
        raise OpsError(f"{op}: raw has shape {format_shape(raw)}; the last dimension must be even, (..., 2 N)")
    backend.check_backend(op, raw, 1)
    chosen = backend.choose(raw)
    if uses_reference(chosen, raw):
        (a,) = call_in_float32(reference.unit_phasors, raw, radius)
        return a
    (a,) = OPERATION(raw.reshape(1, -1, raw.shape[-1]).contiguous(), radius, chosen)
    return a.reshape(*raw.shape[:-1], raw.shape[-1] // 2, 2)
