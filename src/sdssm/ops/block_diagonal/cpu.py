"""The block-diagonal scan on the CPU; the dense scan is the case of one block."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import chunks
from sdssm.ops.compiled import CompiledTransitions
from sdssm.ops.transitions import Transitions, cut_into_chunks, previous_states


class BlockTransitions(CompiledTransitions):
    """A block-diagonal matrix for every step: (P, L, H, S, S)."""

    kernel = "block"

    def __init__(self, A: Tensor) -> None:
        self.A = A
        self.rows, self.length, self.blocks, self.block, _ = A.shape
        self.size = self.blocks * self.block

    def _multiply(self, matrices: Tensor, x: Tensor) -> Tensor:
        return (matrices @ x.reshape(self.rows, self.blocks, self.block, 1)).reshape(self.rows, self.size)

    def apply(self, t: int, x: Tensor) -> Tensor:
        return self._multiply(self.A[:, t], x)

    def adjoint(self, t: int, g: Tensor) -> Tensor:
        return self._multiply(self.A[:, t].mT, g)

    def matrix(self, t: int) -> Tensor:
        return self.A[:, t]

    def chunked(self, chunk: int) -> Transitions:
        return BlockTransitions(cut_into_chunks(self.A, chunk))

    def tables(self, *, adjoint: bool) -> tuple[Tensor, ...]:
        return (self.A,)


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (B, L, N), final (B, N) and factors (B, L) or empty.

    A (B, L, H, S, S), b (B, L, N), x0 (B, N), lengths (B,).
    """
    return chunks.scan_forward(BlockTransitions(A), b, x0, lengths, rescale, mode, like=A)


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
    adjoints, grad_x0 = chunks.scan_backward(
        BlockTransitions(A), grad_states, grad_final, lengths, states, factors, rescale, mode
    )
    shape = (*states.shape[:2], *A.shape[2:4])  # (B, L, H, S)
    left, right = adjoints.reshape(shape), previous_states(states, x0).reshape(shape)
    return left[..., :, None] * right[..., None, :], None if b is None else adjoints, grad_x0
