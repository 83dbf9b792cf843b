"""The diagonal scan on the CPU, real and complex."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import chunks
from sdssm.ops.compiled import CompiledTransitions
from sdssm.ops.transitions import Transitions, cut_into_chunks, previous_states


class DiagonalTransitions(CompiledTransitions):
    """A diagonal for every step: (P, L, N)."""

    kernel = "diagonal"

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
        return DiagonalTransitions(cut_into_chunks(self.A, chunk))

    def of_products(self, products: Tensor) -> Transitions:
        return DiagonalTransitions(products)

    def tables(self, *, adjoint: bool) -> tuple[Tensor, ...]:
        return (self.A,)


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (B, L, N), final (B, N) and factors (B, L) or empty.

    A (B, L, N), b (B, L, N), x0 (B, N), lengths (B,).
    """
    return chunks.scan_forward(DiagonalTransitions(A), b, x0, lengths, rescale, mode, like=A)


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
    """Return the gradients of A, b (None without b) and x0, in torch's convention for complex tensors."""
    adjoints, grad_x0 = chunks.scan_backward(
        DiagonalTransitions(A), grad_states, grad_final, lengths, states, factors, rescale, mode
    )
    grad_A = (adjoints * previous_states(states, x0).conj()).resolve_conj()
    return grad_A, None if b is None else adjoints, grad_x0
