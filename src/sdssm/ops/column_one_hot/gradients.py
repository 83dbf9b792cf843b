"""From adjoints to the gradients of P and D.

With z = D * x and the adjoint a of x_t, in torch's convention for complex numbers (a = dL/dRe + i dL/dIm):

    dP_ij = Re(conj(a_i) D_j x_j),   dD_j = a_to(j) conj(x_j),   to(j) the row of column j's 1.

Both follow from the products C_ij = conj(a_i) x_j, which may be summed over all places of a symbol first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def of_places(adjoints: Tensor, before: Tensor, D: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
    """Every place its own transition: adjoints, the states before, D and `to` (R, L, N) -> dP (R, L, N, N), dD."""
    z = torch.view_as_real((D * before).resolve_conj())
    dP = torch.view_as_real(adjoints) @ z.mT  # (R, L, N, 2) x (R, L, 2, N): the real part
    return dP, of_diagonal(adjoints, before, to)


def of_diagonal(adjoints: Tensor, before: Tensor, to: Tensor) -> Tensor:
    """dD alone, of places: (..., N) each."""
    return (adjoints.gather(-1, to.long()) * before.conj()).resolve_conj()


def of_sums(sums: Tensor, D: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
    """From the sums of C for each symbol, (..., N, N): dP (..., N, N) and dD (..., N)."""
    dP = (sums * D[..., None, :]).real.contiguous()
    return dP, sums.gather(-2, to.long()[..., None, :])[..., 0, :].conj().resolve_conj()
