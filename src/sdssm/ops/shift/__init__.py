"""The kernels of shift systems: first taps and their gradient in one kernel each.

For small systems on a GPU, and with numba on a CPU. `sdssm.layers.h3` computes them elsewhere.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_dtypes, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import as_one_replica
from sdssm.ops.shift import reference

OPERATION = DifferentiableOperation(
    "shift_taps",
    "shift",
    tensors=("B", "C"),
    differentiable=("B", "C"),
    results=("taps",),
    unsaved_results=("taps",),
)
#: The largest state and the most taps of the kernels.
MOST_STATES, MOST_TAPS = 128, 64


def shift_taps(B: Tensor, C: Tensor, *, length: int) -> Tensor:
    """Return the kernels K_l = sum_i C_{i+l} B_i of shift systems: B and C (D, N) -> (D, length).

    >>> import torch
    >>> shift_taps(torch.tensor([[1.0, 10.0]]), torch.tensor([[3.0, 4.0]]), length=3)
    tensor([[43.,  4.,  0.]])
    """
    op = "shift_taps"
    check_rank(op, "B", B, ("D", "N"))
    check_dtypes(op, [("B", B), ("C", C)])
    if B.shape != C.shape or B.dim() != 2:
        raise OpsError(f"{op}: the shapes {format_shape(B)}, {format_shape(C)} do not fit; pass (D, N) and (D, N)")
    chosen = backend.choose(B)
    backend.check_backend(op, B, 1)
    with backend.no_autocast(B):
        too_large = B.shape[1] > MOST_STATES or length > MOST_TAPS
        if not backend.has_fast_kernels(B) or too_large:
            return reference.taps(B, C, length)
        (taps,) = OPERATION(*as_one_replica(B, C), length, chosen)
    return taps.squeeze(0)
