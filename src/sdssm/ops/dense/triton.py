"""The dense scan on NVIDIA GPUs: x_t = A_t x_{t-1} + b_t, A (B, L, N, N)."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.block_diagonal import triton as block_diagonal


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (B, L, N), final (B, N) and factors (B, L) or empty."""
    return block_diagonal.forward(A[:, :, None], b, x0, lengths, rescale=rescale, mode=mode)


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, A: Tensor, b: Tensor | None, x0: Tensor | None,
    lengths: Tensor | None, states: Tensor, factors: Tensor, *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Return the gradients of A (B, L, N, N), of b (B, L, N) or None, and of x0 (B, N)."""
    dA, db, dx0 = block_diagonal.backward(
        grad_states, grad_final, A[:, :, None], b, x0, lengths, states, factors, rescale=rescale, mode=mode
    )
    return dA[:, :, 0], db, dx0
