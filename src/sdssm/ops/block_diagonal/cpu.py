"""Block-diagonal scan on the CPU; the dense scan is the case of one block."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import chunks, compiled
from sdssm.ops.transitions import Transitions, cut, final_state, previous


class BlockTransitions(Transitions):
    """Matrices given one by one: (P, L, H, S, S)."""

    def __init__(self, A: Tensor) -> None:
        self.A = A
        self.rows, self.length, self.blocks, self.block, _ = A.shape
        self.size = self.blocks * self.block

    def _act(self, matrices: Tensor, x: Tensor) -> Tensor:
        return (matrices @ x.reshape(self.rows, self.blocks, self.block, 1)).reshape(self.rows, self.size)

    def apply(self, t: int, x: Tensor) -> Tensor:
        return self._act(self.A[:, t], x)

    def adjoint(self, t: int, g: Tensor) -> Tensor:
        return self._act(self.A[:, t].mT, g)

    def matrix(self, t: int) -> Tensor:
        return self.A[:, t]

    def chunked(self, chunk: int) -> Transitions:
        return BlockTransitions(cut(self.A, chunk))

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        if compiled.available():
            return compiled.forward("block", (self.A,), self.size, drive, x0, lengths, rescale)
        return super().forward(drive, x0, lengths, rescale, like)

    def backward(
        self,
        grad_states: Tensor | None,
        grad_final: Tensor | None,
        lengths: Tensor | None,
        states: Tensor,
        factors: Tensor,
        rescale: bool,
    ) -> tuple[Tensor, Tensor]:
        if compiled.available():
            return compiled.backward("block", (self.A,), grad_states, grad_final, lengths, states, factors, rescale)
        return super().backward(grad_states, grad_final, lengths, states, factors, rescale)


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """A (B, L, H, S, S), b (B, L, N), x0 (B, N) -> states (B, L, N), final (B, N), factors (B, L) or empty."""
    transitions = BlockTransitions(A)
    scan = chunks.forward if mode == "parallel" else type(transitions).forward
    states, factors = scan(transitions, b, x0, lengths, rescale, A)
    return states, final_state(states, x0, lengths), factors


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
    """Gradients of A, b and x0."""
    transitions = BlockTransitions(A)
    scan = chunks.backward if mode == "parallel" else type(transitions).backward
    adjoints, grad_x0 = scan(transitions, grad_states, grad_final, lengths, states, factors, rescale)
    per_block = (*states.shape[:2], *A.shape[2:4])  # (B, L, H, S)
    left, right = adjoints.reshape(per_block), previous(states, x0).reshape(per_block)
    return left[..., :, None] * right[..., None, :], None if b is None else adjoints, grad_x0
