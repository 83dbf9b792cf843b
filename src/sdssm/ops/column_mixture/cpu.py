"""Column-mixture scan on the CPU: the column-one-hot scan over the mixtures of all steps."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops.column_one_hot import cpu
from sdssm.ops.layout import rows_as_replicas


def forward(
    dictionary: Tensor, weights: Tensor, D: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return states (R, B, L, N), final (R, B, N), targets (R, B, L, N) and the softmax (R, B, L, N, N).

    dictionary (R, K, N, N), weights (R, B, L, K), D and b (R, B, L, N), x0 (R, B, N), lengths (R, B). The targets are
    the row of the 1 in each column. The softmax is transposed, so that columns are contiguous: otherwise it is slow.
    """
    R, B, L, N = D.shape
    mixed = torch.bmm(weights.flatten(1, 2), dictionary.mT.flatten(2))
    softmax = torch.softmax(mixed.view(R, B, L, N, N), dim=-1)
    states, final, targets = cpu.forward(
        softmax.mT.flatten(0, 1), D.flatten(0, 1), None, *rows_as_replicas(b, x0, lengths)
    )
    return states.view(D.shape), final.view(R, B, N), targets.view(D.shape), softmax


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, dictionary: Tensor, weights: Tensor, D: Tensor,
    b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, states: Tensor, final: Tensor, targets: Tensor,
    softmax: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of dictionary, weights, D, b and x0."""
    (R, B, L, N), K = D.shape, weights.shape[-1]
    rows = rows_as_replicas(grad_states, grad_final, b, x0, lengths, states, final)
    P, diagonals = softmax.mT.flatten(0, 1), D.flatten(0, 1)
    arguments = *rows[:2], P, diagonals, None, *rows[2:], targets.flatten(0, 1)
    dP, dD, db, dx0 = cpu.backward(*arguments)
    assert dP is not None and dD is not None
    dsoftmax = dP.view(softmax.shape).mT
    dM = (softmax * (dsoftmax - (softmax * dsoftmax).sum(-1, keepdim=True))).reshape(R, B * L, N * N)
    ddictionary = torch.bmm(weights.flatten(1, 2).mT, dM).view(R, K, N, N).mT
    dweights = torch.bmm(dM, dictionary.mT.flatten(2).mT).view(weights.shape)
    db = None if db is None else db.view(D.shape)
    return ddictionary, dweights, dD.view(D.shape), db, None if dx0 is None else dx0.view(final.shape)
