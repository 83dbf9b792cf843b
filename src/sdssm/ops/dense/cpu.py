"""The dense scan on the CPU: a block-diagonal scan with one block as large as the state."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.block_diagonal import cpu as blocks


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (B, L, N), final (B, N) and factors (B, L) or empty.

    A (B, L, N, N), b (B, L, N), x0 (B, N), lengths (B,).
    """
    return blocks.forward(A.unsqueeze(2), b, x0, lengths, rescale=rescale, mode=mode)


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    A: Tensor,
    b: Tensor | None,
    x0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
    *,
    rescale: bool,
    mode: str,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradients of A, b (None without b) and x0."""
    grad_A, grad_b, grad_x0 = blocks.backward(
        grad_states, grad_final, A.unsqueeze(2), b, x0, lengths, states, factors, rescale=rescale, mode=mode
    )
    return grad_A.squeeze(2), grad_b, grad_x0
