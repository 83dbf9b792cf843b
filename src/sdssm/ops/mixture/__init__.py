"""The mixture scan: x_t = A_t x_{t-1} + b_t, A_t mixed from a dictionary with normalised columns."""

from __future__ import annotations

from torch import Tensor

from sdssm.devices import TRITON_LARGEST_MATRIX
from sdssm.ops import backend
from sdssm.ops.checks import check_device, check_dtypes, check_last_dimensions, check_rank, check_square, check_states
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.mixture import reference
from sdssm.ops.norms import check_p, check_p_values, flatten_exponent
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


def _sizes(tensors: Tensors) -> tuple[tuple[int, ...], int, int]:
    dictionary, weights = tensors[:2]
    assert dictionary is not None and weights is not None
    return (weights.shape[0], weights.shape[1]), weights.shape[2], dictionary.shape[-1]


def _check_values(tensors: Tensors) -> None:
    weights, p, lengths = tensors[1], tensors[4], tensors[5]
    assert weights is not None
    if p is not None:
        check_p_values("mixture_scan", p)
    check_length_values("mixture_scan", lengths, weights.shape[2])


OPERATOR = ScanOperator(
    "mixture",
    tensors=("dictionary", "weights", "b", "x0", "p", "lengths"),
    differentiable=("dictionary", "weights", "b", "x0"),
    sizes=_sizes,
    check_values=_check_values,
    optional=frozenset({"b", "x0", "p", "lengths"}),
    has_norms=True,
)


def _check(
    op: str,
    dictionary: Tensor,
    weights: Tensor,
    b: Tensor | None,
    x: Tensor | None,
    p: float | Tensor | None,
    form: tuple[str, ...],
    x_name: str,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Check shapes, dtypes and devices; return dictionary, weights, b and the state in one dtype."""
    check_rank(op, "dictionary", dictionary, ("K", "N", "N"))
    check_square(op, "dictionary", dictionary)
    dictionary, weights, b, x = promote_under_autocast(dictionary, weights, b, x)
    check_dtypes(op, [("dictionary", dictionary), ("weights", weights), ("b", b), (x_name, x)])
    check_rank(op, "weights", weights, form)
    check_last_dimensions(op, "weights", weights, (dictionary.shape[-3],), ("K",), "dictionary", dictionary)
    if b is not None:
        tail = (*weights.shape[weights.dim() + 1 - len(form) : -1], dictionary.shape[-1])
        check_last_dimensions(op, "b", b, tail, (*form[1:-1], "N"), "weights", weights)
    if x is not None:
        check_last_dimensions(op, x_name, x, dictionary.shape[-1:], ("N",), "dictionary", dictionary)
    if p is not None:
        check_p(op, p)
        if isinstance(p, Tensor):
            check_device(op, "p", p, "dictionary", dictionary)
    return dictionary, weights, b, x


def mixture_scan(
    dictionary: Tensor,
    weights: Tensor,
    b: Tensor | None = None,
    x0: Tensor | None = None,
    *,
    p: float | Tensor | None,
    lengths: Tensor | None = None,
    rescale: bool = False,
    mode: str = "auto",
    check_finite: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute x_t = A_t x_{t-1} + b_t with A_t a mixture of matrices with normalised columns.

    A_t is sum_i weights_t[i] dictionary_i, each column divided by its l_p norm. dictionary (..., K, N, N),
    weights (..., B, L, K), b (..., B, L, N), x0 broadcasts to (..., B, N), lengths to (..., B) ->
    states (..., B, L, N), final (..., B, N). `p` is a number of at least 1, a tensor of them over the leading
    dimensions, or None for no normalisation; it is not differentiated. Only a few matrices exist at a time. See
    `docs/reference/ops.md` for the options.

    >>> import torch
    >>> keep, swap = torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> weights = torch.tensor([[[3.0, 0.0], [0.0, 0.5]]])  # (B=1, L=2, K=2): keep, then swap, at any scale
    >>> states, final = mixture_scan(torch.stack([keep, swap]), weights, x0=torch.tensor([1.0, 0.0]), p=1.2)
    >>> states.round(decimals=4).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    op = "mixture_scan"
    dictionary, weights, b, x0 = _check(op, dictionary, weights, b, x0, p, ("B", "L", "K"), "x0")
    check_lengths(op, lengths, "dictionary", dictionary)
    size, length = dictionary.shape[-1], weights.shape[-2]
    check_options(op, dictionary, size, b, rescale, mode, TRITON_LARGEST_MATRIX)
    exponent = p.detach() if isinstance(p, Tensor) else None
    lead = broadcast_leads(
        op,
        [
            ("weights", weights, 2),
            ("dictionary", dictionary.unsqueeze(-4), 3),
            ("b", b, 2),
            ("x0", x0, 1),
            ("lengths", lengths, 0),
            ("p", None if exponent is None else exponent.unsqueeze(-1), 0),
        ],
    )
    with backend.no_autocast(dictionary):
        if backend.choose(dictionary) == "reference":
            check_length_values(op, lengths, length)
            if exponent is not None:
                check_p_values(op, exponent)
            start = start_state(x0, lead, dictionary, size)
            converted_p = p if exponent is None else exponent.to(dictionary.dtype)
            states, final = reference.scan(dictionary, weights, b, start, converted_p, lengths, rescale=rescale)
            if check_finite:
                check_states(op, states, lengths)
            return states, final
        parameters = [lead_of(dictionary, 3)] if exponent is None else [lead_of(dictionary, 3), exponent.shape]
        outer, replicas, rows = replicas_and_rows(parameters, lead)
        tensors = (
            flatten_leading(dictionary, outer, 3, (replicas,)),
            flatten_leading(weights, lead, 2, (replicas, rows)),
            flatten_leading(b, lead, 2, (replicas, rows)),
            flatten_leading(x0, lead, 1, (replicas, rows)),
            flatten_exponent(p, outer, dictionary),
            flatten_integers(lengths, lead, 0, (replicas, rows)),
        )
        states, final = OPERATOR.scan(tensors, rescale=rescale, mode=mode, check_finite=check_finite)
    return states.reshape(*lead, length, size), final.reshape(*lead, size)


def mixture_step(
    dictionary: Tensor,
    weights: Tensor,
    b: Tensor | None,
    x: Tensor,
    *,
    p: float | Tensor | None,
    rescale: bool = False,
) -> Tensor:
    """Compute one step of `mixture_scan`.

    weights (..., B, K), b (..., B, N), x (..., B, N) -> the next state (..., B, N).

    >>> import torch
    >>> mixture_step(torch.eye(2)[None], torch.tensor([[7.0]]), None, torch.tensor([[1.0, 2.0]]), p=1).tolist()
    [[1.0, 2.0]]
    """
    op = "mixture_step"
    dictionary, weights, b, state = _check(op, dictionary, weights, b, x, p, ("B", "K"), "x")
    assert state is not None
    check_homogeneous(op, b, rescale)
    with backend.no_autocast(dictionary):
        exponent = p.to(dictionary.dtype) if isinstance(p, Tensor) else p
        z = reference.step(dictionary, weights, b, state, exponent)
        return rescaled(z) if rescale else z
