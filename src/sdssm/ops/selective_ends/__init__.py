"""The last output of the selective scan of Mamba, for models that read nothing else of a string."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, needs_gradient
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import check_length_values, check_lengths, promote_under_autocast
from sdssm.ops.selective_ends import reference

OPERATION = DifferentiableOperation(
    "selective_end",
    "selective_ends",
    tensors=("x", "delta", "A", "B", "C", "lengths"),
    differentiable=("x", "delta", "A", "B", "C"),
    results=("y",),
)


def selective_end(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, *, lengths: Tensor | None = None
) -> Tensor:
    """Compute the output of `selective_scan` at the last step of each row.

        y[d] = sum_n C[n] sum_t exp(T_t[d] A[d, n]) delta_t[d] x_t[d] B_t[n],  T_t = sum of delta_s over s > t

    It starts from the state 0. There is no recurrence in it, and no state is stored.

    Args:
        x: Inputs (..., B, L, D).
        delta: Time steps (..., B, L, D).
        A: (..., D, N). It is a parameter: its leading dimensions are those before B.
        B: (..., B, L, N).
        C: Of the last step, (..., B, N).
        lengths: Number of steps of each row, broadcast to (..., B); None is L.

    Returns:
        y (..., B, D), zero for a row without steps.

    >>> import torch
    >>> x, ones = torch.tensor([[[1.0], [0.0], [0.0]]]), torch.ones(1, 3, 1)  # (B=1, L=3, D=1), N=1
    >>> selective_end(x, ones, torch.tensor([[0.5]]).log(), ones, torch.tensor([[4.0]])).tolist()
    [[1.0]]
    """
    op = "selective_end"
    check_rank(op, "x", x, ("B", "L", "D"))
    check_rank(op, "A", A, ("D", "N"))
    x, delta, A, B, C = promote_under_autocast(x, delta, A, B, C)
    check_dtypes(op, [("x", x), ("delta", delta), ("A", A), ("B", B), ("C", C)])
    (length, D), N = x.shape[-2:], A.shape[-1]
    check_last_dimensions(op, "A", A, (D, N), ("D", "N"), "x", x)
    check_last_dimensions(op, "delta", delta, (length, D), ("L", "D"), "x", x)
    check_last_dimensions(op, "B", B, (length, N), ("L", "N"), "A", A)
    check_last_dimensions(op, "C", C, (N,), ("N",), "A", A)
    check_lengths(op, lengths, "x", x)
    backend.check_backend(op, x, N)
    check_length_values(op, lengths, length)
    lead = broadcast_leads(
        op,
        [
            ("x", x, 2),
            ("delta", delta, 2),
            ("A", A.unsqueeze(-3), 2),
            ("B", B, 2),
            ("C", C, 1),
            ("lengths", lengths, 0),
        ],
    )
    chosen = backend.choose(x)
    with backend.no_autocast(x):
        if uses_reference(chosen, x):
            C = C.expand(*lead, N)
            B = B.expand(*lead, length, N)
            h = x.new_zeros(*lead, D, N)
            (y,) = call_in_float32(reference.last_output, x, delta, A, B, C, h, lengths)
            return y
        outer, replicas, rows = replicas_and_rows([lead_of(A, 2)], lead)
        row_lead = (replicas, rows)
        (y,) = OPERATION(
            flatten_leading(x, lead, 2, row_lead),
            flatten_leading(delta, lead, 2, row_lead),
            flatten_leading(A, outer, 2, (replicas,)),
            flatten_leading(B, lead, 2, row_lead),
            flatten_leading(C, lead, 1, row_lead),
            flatten_integers(lengths, lead, 0, row_lead),
            needs_gradient((x, delta, A, B, C)),
            chosen,
        )
    return y.reshape(*lead, D)
