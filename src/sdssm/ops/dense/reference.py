"""The dense scan as a plain loop."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.reference import loop


def step(A: Tensor, x: Tensor, b: Tensor | None) -> Tensor:
    """Return A x + b."""
    z = (A @ x[..., None])[..., 0]
    return z if b is None else z + b


def scan(A: Tensor, b: Tensor | None, x0: Tensor, lengths: Tensor | None, *, rescale: bool) -> tuple[Tensor, Tensor]:
    """Compute x_t = A_t x_{t-1} + b_t from x0 (..., N), which has the leading dimensions of the result."""

    def step_at(t: int, x: Tensor) -> Tensor:
        return step(A[..., t, :, :], x, None if b is None else b[..., t, :])

    return loop(step_at, x0, A.shape[-3], lengths, rescale)
