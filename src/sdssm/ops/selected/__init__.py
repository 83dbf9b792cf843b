"""A matrix for every symbol whose mixture weights are a softmax: `mixed_matrices` and the softmax as one operation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank
from sdssm.ops.layout import broadcast_leads, flatten_leading
from sdssm.ops.mixed import check_arguments, mixed_matrices
from sdssm.ops.norms import flatten_exponent
from sdssm.ops.prepare import promote_under_autocast

OPERATION = DifferentiableOperation(
    "selected_matrices",
    "selected",
    tensors=("dictionary", "selection", "bias", "p"),
    differentiable=("dictionary", "selection", "bias"),
    results=("matrices",),
)


def selected_matrices(dictionary: Tensor, selection: Tensor, bias: Tensor, p: float | Tensor | None) -> Tensor:
    """Return `mixed_matrices(dictionary, softmax(selection^T + bias), p)`.

    selection (..., K, V) holds a logit for each matrix of the dictionary (..., K, N, N) and each symbol, bias (..., K)
    one for each matrix. The softmax is over the K matrices. The result is (..., V, N, N). On a GPU this takes fewer
    kernels than two operations, and a step of a small model mostly waits for kernels to start.

    >>> keep, swap = torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> selection = torch.tensor([[50.0, 0.0], [0.0, 0.0]])  # symbol 0 selects `keep`, symbol 1 mixes both
    >>> selected_matrices(torch.stack([keep, swap]), selection, torch.zeros(2), p=1).round(decimals=3).tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
    """
    op = "selected_matrices"
    check_rank(op, "dictionary", dictionary, ("K", "N", "N"))
    dictionary, selection, bias = promote_under_autocast(dictionary, selection, bias)
    check_dtypes(op, [("dictionary", dictionary), ("selection", selection), ("bias", bias)])
    check_rank(op, "selection", selection, ("K", "V"))
    K = (dictionary.shape[-3],)
    check_last_dimensions(op, "selection", selection[..., 0], K, ("K",), "dictionary", dictionary)
    check_last_dimensions(op, "bias", bias, K, ("K",), "dictionary", dictionary)
    exponent = check_arguments(op, dictionary, p)
    lead = broadcast_leads(
        op,
        [("dictionary", dictionary, 3), ("selection", selection, 2), ("bias", bias, 1), ("p", exponent, 0)],
    )
    chosen = backend.choose(dictionary)
    with backend.no_autocast(dictionary):
        if uses_reference(chosen, dictionary):
            return mixed_matrices(dictionary, torch.softmax(selection.mT + bias[..., None, :], dim=-1), p)
        replicas = (math.prod(lead),)
        (matrices,) = OPERATION(
            flatten_leading(dictionary, lead, 3, replicas),
            flatten_leading(selection, lead, 2, replicas),
            flatten_leading(bias, lead, 1, replicas),
            flatten_exponent(p, lead, dictionary),
            chosen,
        )
    return matrices.reshape(*lead, *matrices.shape[1:])
