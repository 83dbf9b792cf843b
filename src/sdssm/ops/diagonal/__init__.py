"""The diagonal scan: x_t = A_t * x_{t-1} + b_t entry by entry, real or complex."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.diagonal import reference
from sdssm.ops.matrix_scan import MatrixScan

_SCAN = MatrixScan("diagonal", ("N",), reference.step, reference.scan, complex_too=True)
OPERATOR = _SCAN.register()


def diagonal_scan(
    A: Tensor,
    b: Tensor | None = None,
    x0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    rescale: bool = False,
    mode: str = "auto",
    check_finite: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute `dense_scan` for diagonal matrices.

    A (..., L, N), b (..., L, N), x0 (..., N), all real or all complex.

    >>> import torch
    >>> quarter_turn = torch.full((4, 1), 1j, dtype=torch.complex64)
    >>> states, final = diagonal_scan(quarter_turn, x0=torch.ones(1, dtype=torch.complex64))
    >>> (states.real + 0.0).flatten().tolist()
    [0.0, -1.0, 0.0, 1.0]
    """
    return _SCAN.scan(OPERATOR, A, b, x0, lengths, rescale=rescale, mode=mode, check_finite=check_finite)


def diagonal_step(A: Tensor, x: Tensor, b: Tensor | None = None, *, rescale: bool = False) -> Tensor:
    """Compute one step of `diagonal_scan`: A, x, b (..., N) -> the next state (..., N).

    >>> import torch
    >>> diagonal_step(torch.tensor([2.0]), torch.tensor([3.0]), torch.tensor([1.0])).tolist()
    [7.0]
    """
    return _SCAN.step(A, x, b, rescale=rescale)
