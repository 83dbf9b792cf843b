"""Selected matrices on the CPU: a softmax of torch before the mixture, and its gradient after."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.mixed import cpu as mixed


def forward(dictionary: Tensor, selection: Tensor, bias: Tensor, p: Tensor | None) -> tuple[Tensor, ...]:
    """Return A (R, V, N, N), the weights of the mixture (R, V, K), and what the gradient of the mixture needs.

    dictionary (R, K, N, N), selection (R, K, V), bias (R, K), p (R,).
    """
    mixing = torch.softmax(selection.mT + bias[:, None], dim=-1)
    A, norms, powers = mixed.forward(dictionary, mixing, p)
    return A, mixing, norms, powers


def backward(
    grad: Tensor, dictionary: Tensor, selection: Tensor, bias: Tensor, p: Tensor | None, A: Tensor, mixing: Tensor,
    norms: Tensor, powers: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of dictionary, selection and bias."""
    grad_dictionary, grad_mixing = mixed.backward(grad, dictionary, mixing, p, A, norms, powers)
    grad_logits = torch._softmax_backward_data(grad_mixing, mixing, -1, mixing.dtype)
    return grad_dictionary, grad_logits.mT.contiguous(), grad_logits.sum(1)
