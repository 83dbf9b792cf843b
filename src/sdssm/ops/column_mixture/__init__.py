"""The recurrence x_t = P_t (D_t * x_{t-1}) + b_t with one-hot columns from a mixture of matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_complex, check_device, check_dtypes, check_last_dimensions, check_rank, check_square
from sdssm.ops.column_mixture import reference
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.linear import linear_map
from sdssm.ops.prepare import check_length_values, check_lengths, start_state

__all__ = ["column_mixture_scan", "column_softmax"]

OPERATION = DifferentiableOperation(
    "column_mixture_scan",
    "column_mixture",
    tensors=("dictionary", "weights", "D", "b", "x0", "lengths"),
    differentiable=("dictionary", "weights", "D", "b", "x0"),
    results=("states", "final"),
)


def column_mixture_scan(
    dictionary: Tensor,
    weights: Tensor,
    D: Tensor,
    b: Tensor | None = None,
    x0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute x_t = P_t (D_t * x_{t-1}) + b_t for every step t.

    P_t has a 1 at the largest entry of each column of M_t, and zeros elsewhere.

    M_t = sum_k weights_t[k] dictionary_k. A GPU never stores it. The gradient is straight-through: M_t receives the
    gradient that it would receive if the softmax of its columns took the place of P_t.

    Args:
        dictionary: Real matrices (..., K, N, N). It is a parameter: its leading dimensions are those before B.
        weights: Real (..., B, L, K).
        D: Complex diagonals (..., B, L, N).
        b: Complex (..., B, L, N); None is zero.
        x0: The complex state before the first step (..., B, N); None is zero.
        lengths: Number of steps of each row (..., B); None is L.

    Returns:
        The states (..., B, L, N), zero past the end of a row, and the last state of each row (..., B, N).

    >>> import torch
    >>> keep, swap = torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> weights = torch.tensor([[[0.2, 0.8], [0.9, 0.1], [0.4, 0.6]]])  # (B=1, L=3, K=2): swap, keep, swap
    >>> D = torch.full((1, 3, 2), 1j)
    >>> states, final = column_mixture_scan(torch.stack([keep, swap]), weights, D, x0=torch.tensor([1, 0j]))
    >>> states.abs().argmax(-1).tolist(), final.tolist()
    ([[1, 1, 0]], [[-1j, 0j]])
    """
    op = "column_mixture_scan"
    check_rank(op, "dictionary", dictionary, ("K", "N", "N"))
    check_square(op, "dictionary", dictionary)
    check_rank(op, "weights", weights, ("B", "L", "K"))
    check_last_dimensions(op, "weights", weights, (dictionary.shape[-3],), ("K",), "dictionary", dictionary)
    size, length = dictionary.shape[-1], weights.shape[-2]
    check_last_dimensions(op, "D", D, (length, size), ("L", "N"), "weights", weights)
    check_device(op, "D", D, "dictionary", dictionary)
    check_complex(op, "D", D, "dictionary", dictionary)
    check_dtypes(op, [("dictionary", dictionary), ("weights", weights)])
    check_dtypes(op, [("D", D), ("b", b), ("x0", x0)], complex_too=True)
    if b is not None:
        check_last_dimensions(op, "b", b, (length, size), ("L", "N"), "weights", weights)
    if x0 is not None:
        check_last_dimensions(op, "x0", x0, (size,), ("N",), "dictionary", dictionary)
    check_lengths(op, lengths, "dictionary", dictionary)
    check_length_values(op, lengths, length)
    backend.check_backend(op, D, size)
    lead = broadcast_leads(
        op,
        [
            ("weights", weights, 2),
            ("dictionary", dictionary.unsqueeze(-4), 3),
            ("D", D, 2),
            ("b", b, 2),
            ("x0", x0, 1),
            ("lengths", lengths, 0),
        ],
    )
    chosen = backend.choose(D)
    with backend.no_autocast(D):
        if uses_reference(chosen, dictionary):
            return reference.scan(dictionary, weights, D, b, start_state(x0, lead, D, size), lengths)
        outer, replicas, rows = replicas_and_rows([lead_of(dictionary, 3)], lead)
        row_lead = (replicas, rows)
        states, final = OPERATION(
            flatten_leading(dictionary, outer, 3, (replicas,)),
            flatten_leading(weights, lead, 2, row_lead),
            flatten_leading(D, lead, 2, row_lead),
            flatten_leading(b, lead, 2, row_lead),
            flatten_leading(x0, lead, 1, row_lead),
            flatten_integers(lengths, lead, 0, row_lead),
            chosen,
        )
    return states.reshape(*lead, length, size), final.reshape(*lead, size)


def column_softmax(dictionary: Tensor, weights: Tensor) -> Tensor:
    """Return the softmax of each column of sum_k weights[k] dictionary_k.

    dictionary (..., K, N, N) and weights (..., *, K) -> (..., *, N, N).

    >>> import torch
    >>> dictionary = torch.tensor([[[0.0, 0.0], [0.0, 9.0]]])
    >>> column_softmax(dictionary, torch.ones(1, 1)).round(decimals=1).tolist()
    [[[0.5, 0.0], [0.5, 1.0]]]
    """
    if dictionary.ndim != 3 or weights.ndim != 2 or backend.choose(weights) != "triton":
        return reference.column_softmax(dictionary, weights)
    # The entries of the matrices are the rows of a linear map: the gradient of the weights is a sum over N * N rows,
    # which many programs share. As a product of matrices (*, N * N) x (N * N, K) it would have a single one.
    size = dictionary.shape[-1]
    mixed = linear_map(dictionary.permute(2, 1, 0).flatten(0, 1), weights).mT  # (*, N * N), column by column
    return torch.softmax(mixed.reshape(-1, size, size), dim=-1).mT
