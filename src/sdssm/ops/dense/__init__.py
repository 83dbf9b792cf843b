"""The dense scan: x_t = A_t x_{t-1} + b_t with a matrix for every step."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.dense import reference
from sdssm.ops.matrix_scan import MatrixScan

_SCAN = MatrixScan("dense", ("N", "N"), reference.step, reference.scan)
OPERATOR = _SCAN.register()


def dense_scan(
    A: Tensor,
    b: Tensor | None = None,
    x0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    rescale: bool = False,
    mode: str = "auto",
    check_finite: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute x_t = A_t x_{t-1} + b_t with a dense matrix for every step.

    A (..., L, N, N), b (..., L, N), x0 (..., N) -> states (..., L, N), final (..., N). Leading dimensions broadcast.
    Without x0 the recurrence starts from zeros, without b it is homogeneous. States past a row's length
    (`lengths`, (...)) are zero and have no gradient; `final` is the state at that length. See
    `docs/reference/ops.md` for `rescale`, `mode` and `check_finite`.

    >>> import torch
    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).expand(3, 2, 2)
    >>> states, final = dense_scan(turn, x0=torch.tensor([1.0, 0.0]))
    >>> (states + 0.0).tolist()
    [[0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    """
    return _SCAN.scan(OPERATOR, A, b, x0, lengths, rescale=rescale, mode=mode, check_finite=check_finite)


def dense_step(A: Tensor, x: Tensor, b: Tensor | None = None, *, rescale: bool = False) -> Tensor:
    """Compute one step of `dense_scan`: A (..., N, N), x (..., N), b (..., N) -> the next state (..., N).

    >>> import torch
    >>> dense_step(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.tensor([2.0, 0.0]), rescale=True).tolist()
    [0.0, 1.0]
    """
    return _SCAN.step(A, x, b, rescale=rescale)
