"""Mixed matrices on the CPU: two matrix products per pass, and one power of every entry in all."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.autograd import empty_placeholder


def forward(dictionary: Tensor, weights: Tensor, p: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return A (R, V, N, N), norms (R, V, 1, N) and |A|^p (R, V, N, N), the last two empty without p.

    dictionary (R, K, N, N), weights (R, V, K), p (R,).
    """
    R, K, N, _ = dictionary.shape
    mixed = torch.bmm(weights, dictionary.view(R, K, N * N)).view(R, -1, N, N)
    if p is None:
        return mixed, empty_placeholder(mixed), empty_placeholder(mixed)
    # A number instead of a tensor for a single replica: torch has faster code for the powers 1 and 2. A stranger's
    # weights may hold 0, of which only a tensor has an inverse, and then the matrices are NaN.
    exponent = float(p[0]) if R == 1 and bool(p[0]) else p[:, None, None, None]
    powers = mixed.abs().pow_(exponent)
    sums = powers.sum(-2, keepdim=True)
    norms = sums.pow(1 / exponent)
    return mixed.div_(norms), norms, powers.div_(sums)


def backward(
    grad: Tensor, dictionary: Tensor, weights: Tensor, p: Tensor | None, A: Tensor, norms: Tensor, powers: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of dictionary and weights.

    With s_j = sum_l dA_lj A_lj and M the mixture before normalisation,

        dM_ij = (dA_ij - s_j sign(A_ij) |A_ij|^(p-1)) / norm_j,

    where sign(A) |A|^(p-1) is computed without a power as |A|^p / A, and 0 for A = 0.
    """
    R, K, N, _ = dictionary.shape
    if p is not None:
        inner = (grad * A).sum(-2, keepdim=True)
        slope = (powers / A).masked_fill_(A == 0, 0)
        grad = slope.mul_(inner).neg_().add_(grad).div_(norms)
    flat = grad.reshape(R, -1, N * N)
    grad_dictionary = torch.bmm(weights.mT, flat).view(dictionary.shape)
    return grad_dictionary, torch.bmm(flat, dictionary.view(R, K, N * N).mT)
