"""The last output of the selective scan as a plain loop over time."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops.selective import reference


def last_output(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor, lengths: Tensor | None
) -> tuple[Tensor]:
    """Return y at the end of each row (..., B, D), from h (..., B, D, N).

    x, delta (..., B, L, D), A (..., D, N), B (..., B, L, N), C (..., B, N), lengths (..., B).
    """
    _, final = reference.scan(x, delta, A, B, C[..., None, :].expand_as(B), h, lengths)
    return ((final * C[..., None, :]).sum(-1),)
