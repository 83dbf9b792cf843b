"""The diagonal scan on NVIDIA GPUs, real or complex: x_t = A_t * x_{t-1} + b_t, A (B, L, N).

A real diagonal is N blocks of size 1. A complex one is N real blocks of size 2 that act on (real, imaginary) pairs. The
transpose of such a block is the block of the conjugate, so the adjoint of the real scan is torch's gradient for complex
tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops._triton.previous_products import matrix_gradient
from sdssm.ops._triton.scan import scan_backward, scan_forward
from sdssm.ops._triton.source import Source
from sdssm.ops._triton.tile import COMPLEX, DENSE


def pairs(x: Tensor | None) -> Tensor | None:
    """View a complex tensor (..., N) as a real one (..., 2N); return a real one unchanged."""
    return torch.view_as_real(x.resolve_conj()).flatten(-2) if x is not None and x.is_complex() else x


def numbers(x: Tensor, like: Tensor) -> Tensor:
    """Invert `pairs`, in the dtype of `like`."""
    if like.is_complex():
        return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2)).to(like.dtype)
    return x.to(like.dtype)


def source_of(A: Tensor) -> Source:
    """Return the matrices as the kernels read them."""
    rows, length, entries = A.shape
    if A.is_complex():
        return Source(COMPLEX, torch.view_as_real(A.resolve_conj()), rows, length, entries, 2)
    return Source(DENSE, A, rows, length, entries, 1)


def forward(
    A: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, *, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (B, L, N), final (B, N) and real factors (B, L) or empty."""
    states, final, factors = scan_forward(source_of(A), pairs(b), pairs(x0), lengths, rescale, mode)
    return numbers(states, A), numbers(final, A), factors


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, A: Tensor, b: Tensor | None, x0: Tensor | None,
    lengths: Tensor | None, states: Tensor, factors: Tensor, *, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Return dA (B, L, N) = dz_t * conj(x_{t-1}), db (B, L, N) = dz_t or None, and dx0 (B, N)."""
    real_states = pairs(states)
    assert real_states is not None
    adjoints, dx0, _ = scan_backward(
        source_of(A), pairs(grad_states), pairs(grad_final), lengths, real_states, factors, rescale, mode
    )
    return matrix_gradient(adjoints, states, x0, A), None if b is None else numbers(adjoints, b), numbers(dx0, A)
