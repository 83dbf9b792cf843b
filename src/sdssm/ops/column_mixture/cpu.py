"""Column-mixture scan on the CPU: the matrices of all places, and then the column-one-hot scan over them."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.column_one_hot import cpu
from sdssm.ops.layout import rows_as_replicas


def forward(
    dictionary: Tensor, weights: Tensor, D: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States (R, B, L, N), final (R, B, N); the row of each column's 1, (R, B, L, N), and the softmax (R, B, L, N, N),
    columns along memory: across it a softmax is slow.

    dictionary (R, K, N, N), weights (R, B, L, K), D and b (R, B, L, N), x0 (R, B, N), lengths (R, B).
    """
    R, B, L, N = D.shape
    mixed = torch.bmm(weights.flatten(1, 2), dictionary.mT.flatten(2))
    s = torch.softmax(mixed.view(R, B, L, N, N), dim=-1)
    states, final, to = cpu.forward(s.mT.flatten(0, 1), D.flatten(0, 1), None, *rows_as_replicas(b, x0, lengths))
    return states.view(D.shape), final.view(R, B, N), to.view(D.shape), s


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, dictionary: Tensor, weights: Tensor, D: Tensor,
    b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, states: Tensor, final: Tensor, to: Tensor, s: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of dictionary, weights, D, b and x0."""
    (R, B, L, N), K = D.shape, weights.shape[-1]
    rows = rows_as_replicas(grad_states, grad_final, b, x0, lengths, states, final)
    given = *rows[:2], s.mT.flatten(0, 1), D.flatten(0, 1), None, *rows[2:], to.flatten(0, 1)
    dP, dD, db, dx0 = cpu.backward(*given)
    assert dP is not None and dD is not None
    grad = dP.view(s.shape).mT
    dM = (s * (grad - (s * grad).sum(-1, keepdim=True))).reshape(R, B * L, N * N)
    ddictionary = torch.bmm(weights.flatten(1, 2).mT, dM).view(R, K, N, N).mT
    dweights = torch.bmm(dM, dictionary.mT.flatten(2).mT).view(weights.shape)
    shaped = [None if one is None else one.view(like.shape) for one, like in ((db, D), (dx0, final))]
    return ddictionary, dweights, dD.view(D.shape), *shaped
