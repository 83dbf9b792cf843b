"""A residual connection with dropout, and the LayerNorm after it: two kernels instead of about twenty."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import as_one_replica
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import promote_under_autocast
from sdssm.ops.residual import reference

OPERATION = DifferentiableOperation(
    "residual_norm",
    "residual",
    tensors=("h", "x", "gain", "shift", "noise"),
    differentiable=("h", "x", "gain", "shift"),
    results=("y", "total"),
    unsaved_results=("y",),
)
#: The widest vectors of the Triton kernels, which keep whole vectors in registers.
LARGEST_WIDTH = 4_096


def residual_norm(
    h: Tensor,
    x: Tensor,
    gain: Tensor,
    shift: Tensor,
    *,
    noise: Tensor | None = None,
    slot: int = 0,
    rate: float = 0.0,
    epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Compute z = h + dropout(x) and LayerNorm(z) = (z - mean) / sqrt(variance + epsilon) gain + shift.

    Dropout sets the entries of x to 0 whose noise is below the rate, and divides the others by 1 - rate.

    Args:
        h: (..., D); (B, L, D) with dropout.
        x: As h.
        gain: (D,).
        shift: (D,).
        noise: Uniform random numbers on [0, 1), (L, J, B, D) for J uses; None: no dropout.
        slot: Which of the J uses this is.
        rate: The dropout rate.
        epsilon: Added to the variance.

    Returns:
        LayerNorm(z) and z, both (..., D).

    >>> import torch
    >>> h, x = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[1.0, 4.0]]])
    >>> y, z = residual_norm(h, x, torch.ones(2), torch.zeros(2))
    >>> y.flatten().round().tolist(), z.flatten().tolist()
    ([-1.0, 1.0], [2.0, 6.0])
    """
    op = "residual_norm"
    check_rank(op, "h", h, ("D",))
    h, x, gain, shift = promote_under_autocast(h, x, gain, shift)
    check_dtypes(op, [("h", h), ("x", x), ("gain", gain), ("shift", shift)])
    width = h.shape[-1]
    if x.shape != h.shape or gain.shape != (width,) or shift.shape != (width,):
        shapes = ", ".join(format_shape(tensor) for tensor in (h, x, gain, shift))
        raise OpsError(f"{op}: h, x, gain and shift have shapes {shapes}; pass (..., D), (..., D), (D,) and (D,)")
    if noise is not None and (noise.dim() != 4 or noise[:, 0].transpose(0, 1).shape != h.shape):
        raise OpsError(
            f"{op}: noise has shape {format_shape(noise)} and h {format_shape(h)}; pass (L, J, B, D), (B, L, D)"
        )
    if noise is not None and not 0 <= slot < noise.shape[1]:
        raise OpsError(f"{op}: slot is {slot}; noise has {noise.shape[1]} uses, from 0 on")
    chosen = backend.choose(h)
    backend.check_backend(op, h, 1)
    with backend.no_autocast(h):
        if chosen != "triton" or uses_reference(chosen, h) or width > LARGEST_WIDTH:
            y, total = call_in_float32(reference.residual_norm, h, x, gain, shift, noise, slot, rate, epsilon)
            return y, total
        rows = (1, *h.shape) if noise is not None else (1, 1, -1, width)
        y, total = OPERATION(
            h.reshape(rows).contiguous(),
            x.reshape(rows).contiguous(),
            *as_one_replica(gain, shift, noise),
            slot,
            rate,
            epsilon,
            chosen,
        )
    return y.reshape(h.shape), total.reshape(h.shape)
