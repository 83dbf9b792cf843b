"""The last output of the selective scan on the CPU: the whole scan, of which only the last state is used."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.selective import cpu


def forward(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, lengths: Tensor | None, needs_grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y (R, B, D), and of the scan the last states (R, B, D, N) and the checkpoints.

    x, delta (R, B, L, D), A (R, D, N), B (R, B, L, N), C (R, B, N), lengths (R, B).
    """
    _, final, checkpoints = cpu.forward(x, delta, A, B, B, None, lengths, needs_grad)
    return (final @ C[..., None])[..., 0], final, checkpoints


def backward(
    grad_y: Tensor, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, lengths: Tensor | None,
    y: Tensor, final: Tensor, checkpoints: Tensor, needs_grad: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of x, delta, A, B and C."""
    grad_final = grad_y[..., None] * C[..., None, :]
    arguments = x, delta, A, B, B, None, lengths, y, final, checkpoints, needs_grad
    dx, ddelta, dA, dB, _, _ = cpu.backward(None, grad_final, *arguments)
    return dx, ddelta, dA, dB, (grad_y[..., None, :] @ final)[..., 0, :]
