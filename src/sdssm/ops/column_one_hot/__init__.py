"""The recurrence x_t = P_t (D_t * x_{t-1}) + b_t with complex diagonals and one-hot columns."""

from __future__ import annotations

import math

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import (
    check_complex,
    check_device,
    check_dtypes,
    check_integers,
    check_last_dimensions,
    check_range,
    check_rank,
    check_square,
)
from sdssm.ops.column_one_hot import reference
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.prepare import check_length_values, check_lengths, start_state

OPERATION = DifferentiableOperation(
    "column_one_hot_scan",
    "column_one_hot",
    tensors=("P", "D", "tokens", "b", "x0", "lengths"),
    differentiable=("P", "D", "b", "x0"),
    results=("states", "final"),
)


def column_one_hot_scan(
    P: Tensor,
    D: Tensor,
    tokens: Tensor | None,
    b: Tensor | None = None,
    x0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute x_t = hard(P_t) (D_t * x_{t-1}) + b_t for every step t.

    hard(P) has a 1 at the largest entry of each column of P, and zeros elsewhere.

    With tokens there is a table of V transitions, and step t takes transition token_t. Without tokens every step has
    its own transition, and all leading dimensions are rows. The gradient is straight-through: P receives the gradient
    that hard(P) would receive as a dense matrix.

    Args:
        P: Real matrices (..., V, N, N), or (..., L, N, N) without tokens.
        D: Complex diagonals (..., V, N), or (..., L, N) without tokens.
        tokens: (..., B, L), or None.
        b: Complex (..., B, L, N); None is zero.
        x0: The complex state before the first step (..., B, N); None is zero.
        lengths: Number of steps of each row (..., B); None is L.

    Returns:
        The states (..., B, L, N), zero past the end of a row, and the last state of each row (..., B, N).

    >>> import torch
    >>> swap = torch.tensor([[0.1, 0.9], [0.7, 0.3]])  # the 1 of column 0 is in row 1, that of column 1 in row 0
    >>> P, D = torch.stack([torch.eye(2), swap]), torch.ones(2, 2, dtype=torch.complex64)
    >>> states, final = column_one_hot_scan(P, D, torch.tensor([[1, 0, 1, 1]]), x0=torch.tensor([1, 0j]))
    >>> states.real.argmax(-1).tolist()  # the parity of every prefix
    [[1, 1, 0, 1]]
    """
    op = "column_one_hot_scan"
    own_transitions = tokens is None
    table_dim = "L" if own_transitions else "V"
    _check_tables(op, P, D, (table_dim, "N", "N"), [("b", b), ("x0", x0)])
    size = P.shape[-1]
    length = P.shape[-3] if tokens is None else _check_tokens(op, tokens, P)
    if b is not None:
        check_last_dimensions(
            op,
            "b",
            b,
            (length, size),
            ("L", "N"),
            "P" if own_transitions else "tokens",
            P if tokens is None else tokens,
        )
    if x0 is not None:
        check_last_dimensions(op, "x0", x0, (size,), ("N",), "P", P)
    check_lengths(op, lengths, "P", P)
    check_length_values(op, lengths, length)
    backend.check_backend(op, D, size)
    # A table has no row dimension; a dimension of size 1 takes its place while leading dimensions are broadcast.
    lead = broadcast_leads(
        op,
        [
            ("tokens", tokens, 1),
            ("P", P if own_transitions else P.unsqueeze(-4), 3),
            ("D", D if own_transitions else D.unsqueeze(-3), 2),
            ("b", b, 2),
            ("x0", x0, 1),
            ("lengths", lengths, 0),
        ],
    )
    chosen = backend.choose(D)
    with backend.no_autocast(D):
        if uses_reference(chosen, P):
            start = start_state(x0, lead, D, size)
            return reference.scan(P, D, None if tokens is None else tokens.long(), b, start, lengths)
        if own_transitions:
            outer, replicas, rows = tuple(lead), math.prod(lead), 1
        else:
            outer, replicas, rows = replicas_and_rows([lead_of(P, 3), lead_of(D, 2)], lead)
        states, final = OPERATION(
            flatten_leading(P, outer, 3, (replicas,)),
            flatten_leading(D, outer, 2, (replicas,)),
            flatten_integers(tokens, lead, 1, (replicas, rows)),
            flatten_leading(b, lead, 2, (replicas, rows)),
            flatten_leading(x0, lead, 1, (replicas, rows)),
            flatten_integers(lengths, lead, 0, (replicas, rows)),
            chosen,
        )
    return states.reshape(*lead, length, size), final.reshape(*lead, size)


def column_one_hot_step(P: Tensor, D: Tensor, x: Tensor, b: Tensor | None = None) -> Tensor:
    """Compute one step of `column_one_hot_scan`.

    P (..., N, N), D, x and b (..., N) -> the next state (..., N).

    >>> import torch
    >>> D, x = torch.tensor([1j, 2]), torch.tensor([1, 1 + 0j])
    >>> column_one_hot_step(torch.tensor([[0.6, 0.8], [0.4, 0.2]]), D, x).tolist()  # both columns have their 1 in row 0
    [(2+1j), 0j]
    """
    op = "column_one_hot_step"
    _check_tables(op, P, D, ("N", "N"), [("x", x), ("b", b)])
    for name, tensor in (("x", x), ("b", b)):
        if tensor is not None:
            check_last_dimensions(op, name, tensor, P.shape[-1:], ("N",), "P", P)
    broadcast_leads(op, [("P", P, 2), ("D", D, 1), ("x", x, 1), ("b", b, 1)])
    with backend.no_autocast(D):
        return reference.step(P, D, x, b)


def _check_tables(
    op: str, P: Tensor, D: Tensor, form: tuple[str, ...], others: list[tuple[str, Tensor | None]]
) -> None:
    """Check P, with the dimensions `form`, D and the complex `others`."""
    check_rank(op, "P", P, form)
    check_square(op, "P", P)
    check_last_dimensions(op, "D", D, P.shape[P.dim() - len(form) : -1], form[:-1], "P", P)
    check_device(op, "D", D, "P", P)
    check_complex(op, "D", D, "P", P)
    check_dtypes(op, [("D", D), *others], complex_too=True)


def _check_tokens(op: str, tokens: Tensor, P: Tensor) -> int:
    """Check that the tokens are indices of the table P, and return their length L."""
    check_integers(op, "tokens", tokens)
    check_rank(op, "tokens", tokens, ("B", "L"))
    check_device(op, "tokens", tokens, "P", P)
    symbols = P.shape[-3]
    check_range(op, "tokens", tokens, 0, symbols - 1, f"P has {symbols} matrices, so tokens are")
    return tokens.shape[-1]
