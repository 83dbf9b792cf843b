# mypy: disable-error-code="no-untyped-call"

"""LayerNorm on NVIDIA GPUs: the kernels of the residual connection, with nothing added."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.residual.triton import run_backward, run_forward


def forward(x: Tensor, gain: Tensor | None, shift: Tensor | None, epsilon: float) -> tuple[Tensor]:
    """Return y (R, M, D) for x (R, M, D), gain and shift (R, D)."""
    y, _ = run_forward(x[:, None], None, gain, shift, None, 0, 0.0, epsilon)
    return (y[:, 0],)


def backward(
    grad: Tensor, x: Tensor, gain: Tensor | None, shift: Tensor | None, epsilon: float
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, gain and shift."""
    dx, _, dgain, dshift = run_backward(grad[:, None], None, x[:, None], gain, shift, None, 0, 0.0, epsilon)
    return dx[:, 0], dgain, dshift
