"""The block-diagonal scan on NVIDIA GPUs: x_t = A_t x_{t-1} + b_t, A (B, L, H, S, S).

Block h acts on the entries h*S .. h*S+S-1 of the state; `rescale` divides by the l2 norm of all N entries.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.ops._triton.previous_products import matrix_gradient
from sdssm.ops._triton.scan import scan_backward, scan_forward
from sdssm.ops._triton.source import Source
from sdssm.ops._triton.tile import DENSE


def source_of(A: Tensor) -> Source:
    """Return the matrices as the kernels read them."""
    rows, length, blocks, size, _ = A.shape
    return Source(DENSE, A, rows, length, blocks, size)


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (B, L, N), final (B, N) and factors (B, L) or empty."""
    return scan_forward(source_of(A), b, x0, lengths, rescale, mode)


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, A: Tensor, b: Tensor | None, x0: Tensor | None,
    lengths: Tensor | None, states: Tensor, factors: Tensor, *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Return the gradients of A, b (None without b) and x0.

    dA (B, L, H, S, S) = dz_t x_{t-1}^T for each block, db (B, L, N) = dz_t.
    """
    adjoints, dx0, _ = scan_backward(source_of(A), grad_states, grad_final, lengths, states, factors, rescale, mode)
    return matrix_gradient(adjoints, states, x0, A), None if b is None else adjoints.to(b.dtype), dx0.to(A.dtype)
