"""The plain loop behind every reference scan, with which all other implementations are compared.

It has no kernels, no flattening and no gradient formulas: leading dimensions broadcast as in torch, and autograd
computes the gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def rescaled(z: Tensor) -> Tensor:
    """Return z / ||z||_2; a state that is exactly zero stays zero and has no gradient."""
    largest = z.detach().abs().amax(-1, keepdim=True)  # divided out so that squares stay in range; it cancels
    z = z / torch.where(largest == 0, 1, largest)
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z * torch.where(largest == 0, 0, 1 / torch.where(largest == 0, 1, norm))


def loop(
    step: Callable[[int, Tensor], Tensor], x: Tensor, length: int, lengths: Tensor | None, rescale: bool
) -> tuple[Tensor, Tensor]:
    """Compute x_t = step(t, x_{t-1}) for t = 0..length-1 from x (..., N).

    Return states (..., L, N) and final (..., N).
    """
    states = []
    for t in range(length):
        new = step(t, x)
        if rescale:
            new = rescaled(new)
        if lengths is None:
            x, visible = new, new
        else:
            inside = (t < lengths)[..., None]
            x, visible = torch.where(inside, new, x), torch.where(inside, new, 0)
        states.append(visible)
    return torch.stack(states, -2), x
