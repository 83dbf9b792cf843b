"""The gradients of P and D from the adjoints of the states.

With z = D * x and the adjoint a of x_t, in torch's convention for complex numbers (a = dL/dRe + i dL/dIm):

    dP_ij = Re(conj(a_i) D_j x_j),   dD_j = a_targets(j) conj(x_j),   targets(j) the row of the 1 in column j.

Both follow from the products C_ij = conj(a_i) x_j, which may be summed over all steps with the same transition first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def step_gradients(adjoints: Tensor, previous_x: Tensor, D: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return dP (R, L, N, N) and dD (R, L, N) if every step has its own transition.

    All arguments are (R, L, N).
    """
    z = torch.view_as_real((D * previous_x).resolve_conj())
    dP = torch.view_as_real(adjoints) @ z.mT  # (R, L, N, 2) x (R, L, 2, N): the real part
    return dP, diagonal_gradient(adjoints, previous_x, targets)


def diagonal_gradient(adjoints: Tensor, previous_x: Tensor, targets: Tensor) -> Tensor:
    """Return dD alone if every step has its own transition; all tensors are (..., N)."""
    return (adjoints.gather(-1, targets.long()) * previous_x.conj()).resolve_conj()


def table_gradients(sums: Tensor, D: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return dP (..., N, N) and dD (..., N) of a table of transitions.

    `sums` (..., N, N) holds the sum of C for each transition.
    """
    dP = (sums * D[..., None, :]).real.contiguous()
    return dP, sums.gather(-2, targets.long()[..., None, :])[..., 0, :].conj().resolve_conj()
