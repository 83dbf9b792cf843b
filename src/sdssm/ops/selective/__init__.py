"""Mamba's recurrence: diagonal states for every channel, read through C_t at once, so that no state is written out."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, gradient_is_wanted
from sdssm.ops.backend import plainly
from sdssm.ops.checks import check_kinds, check_rank, check_tail
from sdssm.ops.layout import broadcast_leads, flatten, lead_of, replicas_and_rows
from sdssm.ops.prepare import check_length_values, check_lengths, one_dtype
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


def _checked(op: str, given: Arguments, steps: tuple[str, ...], state: str) -> Arguments:
    """The arguments in one dtype; `steps` are the dimensions of x before its channels."""
    x, A = given[0], given[2]
    check_rank(op, "x", x, (*steps, "D"))
    check_rank(op, "A", A, ("D", "N"))
    names = ("x", "delta", "A", "B", "C", state)
    x, delta, A, B, C, h = cast(Arguments, tuple(one_dtype(given)))
    check_kinds(op, list(zip(names, (x, delta, A, B, C, h), strict=True)))
    time, (D, N) = tuple(x.shape[-len(steps) : -1]), A.shape[-2:]
    check_tail(op, "A", A, (x.shape[-1], N), ("D", "N"), "x", x)
    check_tail(op, "delta", delta, (*time, D), (*steps[1:], "D"), "x", x)
    check_tail(op, "B", B, (*time, N), (*steps[1:], "N"), "A", A)
    check_tail(op, "C", C, (*time, N), (*steps[1:], "N"), "A", A)
    if h is not None:
        check_tail(op, state, h, (D, N), ("D", "N"), "A", A)
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
    """h_t[d, n] = exp(delta_t[d] A[d, n]) h_{t-1}[d, n] + delta_t[d] B_t[n] x_t[d], y_t[d] = sum_n C_t[n] h_t[d, n].

    x, delta (..., B, L, D), A (..., D, N), B, C (..., B, L, N), h0 broadcasts to (..., B, D, N) and is zero where None,
    lengths to (..., B) -> y (..., B, L, D), final (..., B, D, N), the state after the last step of each row. Outputs
    past the end of a row are zero. The states of all steps, L D N numbers a row, never exist together: for a gradient
    one in eight is kept, and the others are formed again. Source: Gu and Dao, Mamba, 2023, equations 2 to 4.

    >>> x, once = torch.tensor([[[1.0], [0.0], [0.0]]]), torch.ones(1, 3, 1)  # (B=1, L=3, D=1), N=1
    >>> y, final = selective_scan(x, once, torch.tensor([[0.5]]).log(), once, once)
    >>> y.flatten().tolist(), final.flatten().tolist()
    ([1.0, 0.5, 0.25], [0.25])
    """
    op = "selective_scan"
    x, delta, A, B, C, h0 = _checked(op, (x, delta, A, B, C, h0), ("B", "L"), "h0")
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
        if plainly(chosen, x):
            return _plain((x, delta, A, B, C, h0), lengths, lead)
        outer, replicas, rows = replicas_and_rows([lead_of(A, 2)], lead)
        R, RB = (replicas,), (replicas, rows)
        y, final = OPERATION(
            flatten(x, lead, 2, RB), flatten(delta, lead, 2, RB), flatten(A, outer, 2, R),
            flatten(B, lead, 2, RB), flatten(C, lead, 2, RB), None if h0 is None else flatten(h0, lead, 2, RB),
            None if lengths is None else flatten(lengths.long(), lead, 0, RB),
            gradient_is_wanted((x, delta, A, B, C, h0)), chosen,
        )  # fmt: skip
    return y.reshape(*lead, length, D), final.reshape(*lead, D, N)


def _plain(given: Arguments, lengths: Tensor | None, lead: torch.Size) -> tuple[Tensor, Tensor]:
    """The reference, 16-bit numbers in float32."""
    dtype = given[0].dtype
    wide = torch.float32 if dtype in backend.NARROW else dtype
    x, delta, A, B, C = (one.to(wide) for one in given[:5])
    size = (*lead, *A.shape[-2:])
    h = x.new_zeros(size) if given[5] is None else given[5].to(wide).expand(size)
    y, final = reference.scan(x, delta, A, B, C, h, lengths)
    return y.to(dtype), final.to(dtype)


def selective_step(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One step of `selective_scan`: x, delta (..., B, D), A (..., D, N), B, C (..., B, N), h (..., B, D, N) -> y, h.

    >>> one = torch.ones(1, 1)
    >>> y, h = selective_step(one, one, torch.tensor([[0.5]]).log(), one, one, torch.tensor([[[4.0]]]))
    >>> y.tolist(), h.tolist()
    ([[3.0]], [[[3.0]]])
    """
    op = "selective_step"
    x, delta, A, B, C, h = _checked(op, (x, delta, A, B, C, h), ("B",), "h")
    lead = broadcast_leads(
        op, [("x", x, 1), ("delta", delta, 1), ("A", A.unsqueeze(-3), 2), ("B", B, 1), ("C", C, 1), ("h", h, 2)]
    )
    with backend.no_autocast(x):
        start = x.new_zeros(*lead, *A.shape[-2:]) if h is None else h
        return reference.step(x, delta, A, B, C, start)
