"""The block-diagonal scan: x_t = A_t x_{t-1} + b_t, A_t with square blocks along its diagonal."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.block_diagonal import reference
from sdssm.ops.matrix_scan import MatrixScan

_SCAN = MatrixScan("block_diagonal", ("H", "S", "S"), reference.step, reference.scan)
OPERATOR = _SCAN.register()


def block_diagonal_scan(
    A: Tensor,
    b: Tensor | None = None,
    x0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    rescale: bool = False,
    mode: str = "auto",
    check_finite: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute `dense_scan` for block-diagonal matrices, with H blocks of size S.

    A (..., L, H, S, S), b (..., L, N), x0 (..., N) with N = H S. Block h acts on the entries h S .. h S + S - 1 of the
    state. `rescale` divides by the norm of all N entries.

    >>> import torch
    >>> swap_and_double = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[2.0, 0.0], [0.0, 2.0]]])  # (H=2, S=2, S=2)
    >>> states, final = block_diagonal_scan(swap_and_double.expand(3, 2, 2, 2), x0=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    >>> final.tolist()
    [2.0, 1.0, 24.0, 32.0]
    """
    return _SCAN.scan(OPERATOR, A, b, x0, lengths, rescale=rescale, mode=mode, check_finite=check_finite)


def block_diagonal_step(A: Tensor, x: Tensor, b: Tensor | None = None, *, rescale: bool = False) -> Tensor:
    """Compute one step of `block_diagonal_scan`.

    A (..., H, S, S), x (..., N), b (..., N) -> the next state (..., N).

    >>> import torch
    >>> block_diagonal_step(torch.tensor([[[2.0]], [[3.0]]]), torch.tensor([1.0, 1.0])).tolist()
    [2.0, 3.0]
    """
    return _SCAN.step(A, x, b, rescale=rescale)
