"""The token scan: x_t = A[token_t] x_{t-1} + b[token_t], a matrix for each symbol of an alphabet."""

from __future__ import annotations

from torch import Tensor

from sdssm.devices import TRITON_LARGEST_MATRIX
from sdssm.ops import backend
from sdssm.ops.checks import (
    check_device,
    check_dtypes,
    check_integers,
    check_last_dimensions,
    check_range,
    check_rank,
    check_square,
    check_states,
)
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.prepare import (
    check_homogeneous,
    check_length_values,
    check_lengths,
    check_options,
    promote_under_autocast,
    start_state,
)
from sdssm.ops.reference import rescaled
from sdssm.ops.scan_operator import ScanOperator, Tensors
from sdssm.ops.token import reference


def _sizes(tensors: Tensors) -> tuple[tuple[int, ...], int, int]:
    A, tokens = tensors[0], tensors[2]
    assert A is not None and tokens is not None
    return (tokens.shape[0], tokens.shape[1]), tokens.shape[2], A.shape[-1]


def _check_values(tensors: Tensors) -> None:
    A, _, tokens, _, lengths = tensors
    assert A is not None and tokens is not None
    _check_tokens("token_scan", tokens, A.shape[1])
    check_length_values("token_scan", lengths, tokens.shape[-1])


def _check_tokens(op: str, tokens: Tensor, symbols: int) -> None:
    """Check that all tokens are below the number of symbols."""
    check_range(op, "tokens", tokens, 0, symbols - 1, f"A has {symbols} matrices, so tokens are")


OPERATOR = ScanOperator(
    "token",
    tensors=("A", "b", "tokens", "x0", "lengths"),
    differentiable=("A", "b", "x0"),
    sizes=_sizes,
    check_values=_check_values,
)


def _check(
    op: str, A: Tensor, b: Tensor | None, tokens: Tensor, form: tuple[str, ...], x: Tensor | None, x_name: str
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Check shapes, dtypes and devices; return A, b and the state in one dtype."""
    check_rank(op, "A", A, ("V", "N", "N"))
    check_square(op, "A", A)
    A, b, x = promote_under_autocast(A, b, x)
    check_dtypes(op, [("A", A), ("b", b), (x_name, x)])
    check_integers(op, "tokens", tokens)
    check_rank(op, "tokens", tokens, form)
    check_device(op, "tokens", tokens, "A", A)
    if b is not None:
        check_last_dimensions(op, "b", b, A.shape[-3:-1], ("V", "N"), "A", A)
    if x is not None:
        check_last_dimensions(op, x_name, x, A.shape[-1:], ("N",), "A", A)
    return A, b, x


def token_scan(
    A: Tensor,
    b: Tensor | None,
    tokens: Tensor,
    x0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
    rescale: bool = False,
    mode: str = "auto",
    check_finite: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute x_t = A[token_t] x_{t-1} + b[token_t] over an alphabet of V symbols.

    A (..., V, N, N), b (..., V, N) or None, tokens (..., B, L) integers in 0..V-1, x0 broadcasts to (..., B, N),
    lengths to (..., B) -> states (..., B, L, N), final (..., B, N). No tensor of size B x L x N x N is created. See
    `docs/reference/ops.md` for the options.

    >>> import torch
    >>> keep, swap = torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> ones = torch.tensor([[1, 0, 1, 1]])
    >>> states, final = token_scan(torch.stack([keep, swap]), None, ones, torch.tensor([1.0, 0.0]))
    >>> states.argmax(-1).tolist()  # the parity of every prefix
    [[1, 1, 0, 1]]
    """
    op = "token_scan"
    A, b, x0 = _check(op, A, b, tokens, ("B", "L"), x0, "x0")
    check_lengths(op, lengths, "A", A)
    size, length = A.shape[-1], tokens.shape[-1]
    check_options(op, A, size, b, rescale, mode, TRITON_LARGEST_MATRIX)
    # Parameters have no row dimension: a dimension of size 1 takes its place in the broadcast.
    lead = broadcast_leads(
        op,
        [
            ("tokens", tokens, 1),
            ("A", A.unsqueeze(-4), 3),
            ("b", None if b is None else b.unsqueeze(-3), 2),
            ("x0", x0, 1),
            ("lengths", lengths, 0),
        ],
    )
    with backend.no_autocast(A):
        if backend.choose(A) == "reference":
            _check_tokens(op, tokens, A.shape[-3])
            check_length_values(op, lengths, length)
            start = start_state(x0, lead, A, size)
            states, final = reference.scan(A, b, tokens.long(), start, lengths, rescale=rescale)
            if check_finite:
                check_states(op, states, lengths)
            return states, final
        parameters = [lead_of(A, 3)] if b is None else [lead_of(A, 3), lead_of(b, 2)]
        outer, replicas, rows = replicas_and_rows(parameters, lead)
        tensors = (
            flatten_leading(A, outer, 3, (replicas,)),
            flatten_leading(b, outer, 2, (replicas,)),
            flatten_integers(tokens, lead, 1, (replicas, rows)),
            flatten_leading(x0, lead, 1, (replicas, rows)),
            flatten_integers(lengths, lead, 0, (replicas, rows)),
        )
        states, final = OPERATOR.scan(tensors, rescale=rescale, mode=mode, check_finite=check_finite)
    return states.reshape(*lead, length, size), final.reshape(*lead, size)


def token_step(A: Tensor, b: Tensor | None, tokens: Tensor, x: Tensor, *, rescale: bool = False) -> Tensor:
    """Compute one step of `token_scan`: tokens (..., B), x (..., B, N) -> the next state (..., B, N).

    >>> import torch
    >>> token_step(torch.tensor([[[2.0]], [[3.0]]]), None, torch.tensor([0, 1]), torch.ones(2, 1)).tolist()
    [[2.0], [3.0]]
    """
    op = "token_step"
    A, b, state = _check(op, A, b, tokens, ("B",), x, "x")
    assert state is not None
    check_homogeneous(op, b, rescale)
    _check_tokens(op, tokens, A.shape[-3])
    with backend.no_autocast(A):
        z = reference.step(A, b, tokens.long(), state)
        return rescaled(z) if rescale else z
