"""The selective scan of Mamba: a diagonal recurrence per channel whose states are not stored."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, needs_gradient
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import check_length_values, check_lengths, promote_under_autocast
from sdssm.ops.selective import reference

OPERATION = DifferentiableOperation(
    "selective_scan",
    "selective",
    tensors=("x", "delta", "A", "B", "C", "h0", "lengths"),
    differentiable=("x", "delta", "A", "B", "C", "h0"),
    results=("y", "final"),
)

#: x, delta, A, B, C and the state.
Arguments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]


def _validate(op: str, arguments: Arguments, time_dims: tuple[str, ...], state_name: str) -> Arguments:
    """Check shapes, dtypes and devices; return the arguments in one dtype.

    `time_dims` names the dimensions of x before its channels, `state_name` the last argument.
    """
    x, A = arguments[0], arguments[2]
    check_rank(op, "x", x, (*time_dims, "D"))
    check_rank(op, "A", A, ("D", "N"))
    names = ("x", "delta", "A", "B", "C", state_name)
    x, delta, A, B, C, h = promote_under_autocast(*arguments)
    check_dtypes(op, list(zip(names, (x, delta, A, B, C, h), strict=True)))
    time_shape, (D, N) = tuple(x.shape[-len(time_dims) : -1]), A.shape[-2:]
    check_last_dimensions(op, "A", A, (x.shape[-1], N), ("D", "N"), "x", x)
    check_last_dimensions(op, "delta", delta, (*time_shape, D), (*time_dims[1:], "D"), "x", x)
    check_last_dimensions(op, "B", B, (*time_shape, N), (*time_dims[1:], "N"), "A", A)
    check_last_dimensions(op, "C", C, (*time_shape, N), (*time_dims[1:], "N"), "A", A)
    if h is not None:
        check_last_dimensions(op, state_name, h, (D, N), ("D", "N"), "A", A)
    return x, delta, A, B, C, h


def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    h0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the selective scan of Mamba (Gu and Dao, 2023, equations 2 to 4).

        h_t[d, n] = exp(delta_t[d] A[d, n]) h_{t-1}[d, n] + delta_t[d] B_t[n] x_t[d]
        y_t[d] = sum_n C_t[n] h_t[d, n]

    The states of all steps, L D N numbers per row, are never stored together: for the gradient one in eight is kept,
    and the others are recomputed.

    Args:
        x: Inputs (..., B, L, D).
        delta: Time steps (..., B, L, D).
        A: (..., D, N). It is a parameter: its leading dimensions are those before B.
        B: (..., B, L, N).
        C: (..., B, L, N).
        h0: The state before the first step, broadcast to (..., B, D, N); None is zero.
        lengths: Number of steps of each row, broadcast to (..., B); None is L.

    Returns:
        The outputs y (..., B, L, D), zero past the end of a row, and the last state of each row (..., B, D, N).

    >>> import torch
    >>> x, ones = torch.tensor([[[1.0], [0.0], [0.0]]]), torch.ones(1, 3, 1)  # (B=1, L=3, D=1), N=1
    >>> y, final = selective_scan(x, ones, torch.tensor([[0.5]]).log(), ones, ones)
    >>> y.flatten().tolist(), final.flatten().tolist()
    ([1.0, 0.5, 0.25], [0.25])
    """
    op = "selective_scan"
    x, delta, A, B, C, h0 = _validate(op, (x, delta, A, B, C, h0), ("B", "L"), "h0")
    check_lengths(op, lengths, "x", x)
    (length, D), N = x.shape[-2:], A.shape[-1]
    backend.check_backend(op, x, N)
    check_length_values(op, lengths, length)
    lead = broadcast_leads(
        op,
        [
            ("x", x, 2),
            ("delta", delta, 2),
            ("A", A.unsqueeze(-3), 2),
            ("B", B, 2),
            ("C", C, 2),
            ("h0", h0, 2),
            ("lengths", lengths, 0),
        ],
    )
    chosen = backend.choose(x)
    with backend.no_autocast(x):
        if uses_reference(chosen, x):
            size = (*lead, D, N)
            h = x.new_zeros(size) if h0 is None else h0.expand(size)
            return call_in_float32(reference.scan, x, delta, A, B, C, h, lengths)
        outer, replicas, rows = replicas_and_rows([lead_of(A, 2)], lead)
        row_lead = (replicas, rows)
        y, final = OPERATION(
            flatten_leading(x, lead, 2, row_lead),
            flatten_leading(delta, lead, 2, row_lead),
            flatten_leading(A, outer, 2, (replicas,)),
            flatten_leading(B, lead, 2, row_lead),
            flatten_leading(C, lead, 2, row_lead),
            flatten_leading(h0, lead, 2, row_lead),
            flatten_integers(lengths, lead, 0, row_lead),
            needs_gradient((x, delta, A, B, C, h0)),
            chosen,
        )
    return y.reshape(*lead, length, D), final.reshape(*lead, D, N)


def selective_step(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute one step of `selective_scan`.

    x, delta (..., B, D), A (..., D, N), B, C (..., B, N), h (..., B, D, N) or None for zero -> y (..., B, D), next h.

    >>> import torch
    >>> ones = torch.ones(1, 1)
    >>> y, h = selective_step(ones, ones, torch.tensor([[0.5]]).log(), ones, ones, torch.tensor([[[4.0]]]))
    >>> y.tolist(), h.tolist()
    ([[3.0]], [[[3.0]]])
    """
    op = "selective_step"
    x, delta, A, B, C, h = _validate(op, (x, delta, A, B, C, h), ("B",), "h")
    lead = broadcast_leads(
        op, [("x", x, 1), ("delta", delta, 1), ("A", A.unsqueeze(-3), 2), ("B", B, 1), ("C", C, 1), ("h", h, 2)]
    )
    with backend.no_autocast(x):
        start = x.new_zeros(*lead, *A.shape[-2:]) if h is None else h
        return reference.step(x, delta, A, B, C, start)
