"""Diagonal scan on the CPU, real and complex."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import chunks, compiled
from sdssm.ops.transitions import Transitions, cut, final_state, previous


class DiagonalTransitions(Transitions):
    """Diagonals given one by one: (P, L, N)."""

    def __init__(self, A: Tensor) -> None:
        self.A = A
        self.rows, self.length, self.size = A.shape
        self.block = 1

    def apply(self, t: int, x: Tensor) -> Tensor:
        return self.A[:, t] * x

    def adjoint(self, t: int, g: Tensor) -> Tensor:
        return self.A[:, t].conj() * g

    def matrix(self, t: int) -> Tensor:
        return self.A[:, t]

    def chunked(self, chunk: int) -> Transitions:
        return DiagonalTransitions(cut(self.A, chunk))

    def of_products(self, products: Tensor) -> Transitions:
        return DiagonalTransitions(products)

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        if compiled.available():
            return compiled.forward("diagonal", (self.A,), self.size, drive, x0, lengths, rescale)
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
            return compiled.backward("diagonal", (self.A,), grad_states, grad_final, lengths, states, factors, rescale)
        return super().backward(grad_states, grad_final, lengths, states, factors, rescale)


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """A (B, L, N), b (B, L, N), x0 (B, N) -> states (B, L, N), final (B, N), factors (B, L) or empty."""
    transitions = DiagonalTransitions(A)
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
    """Gradients of A, b and x0, in torch's convention for complex tensors."""
    transitions = DiagonalTransitions(A)
    scan = chunks.backward if mode == "parallel" else type(transitions).backward
    adjoints, grad_x0 = scan(transitions, grad_states, grad_final, lengths, states, factors, rescale)
    grad_A = (adjoints * previous(states, x0).conj()).resolve_conj()
    return grad_A, None if b is None else adjoints, grad_x0
