"""Normalisation of columns by their l_p norm, which keeps a dense recurrence from growing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sdssm.ops.checks import can_read_values, check_dtypes, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import broadcast_shapes, flatten_leading


def check_p(op: str, p: float | Tensor) -> None:
    """Raise `OpsError` unless p is a finite number of at least 1, or a real tensor.

    Below 1 it does not define a norm, and the maximum norm is not differentiable.
    """
    if isinstance(p, Tensor):
        if p.dtype.is_complex or p.dtype == torch.bool:
            raise OpsError(f"{op}: p has dtype {p.dtype}; it must be a real number or a tensor of them")
        return
    if not (1 <= p < math.inf):
        raise OpsError(f"{op}: p is {p}; a norm needs a finite p of at least 1")


def check_p_values(op: str, p: Tensor) -> None:
    """Raise `OpsError` unless all entries of p are finite and at least 1. Reads the values."""
    if p.numel() and can_read_values(p):
        least, most = torch.stack(torch.aminmax(p)).tolist()
        if not (least >= 1 and most < math.inf):
            raise OpsError(f"{op}: p holds {least if not least >= 1 else most}; a norm needs a finite p of at least 1")


def flatten_exponent(p: float | Tensor | None, lead: Sequence[int], like: Tensor) -> Tensor | None:
    """Return p for each replica, (R,), without its gradient; None without p.

    Its dtype is that of `like`, but has at least 32 bits: 1.2 in bfloat16 is 1.203.
    """
    if p is None:
        return None
    dtype = like.dtype if like.dtype in (torch.float32, torch.float64) else torch.float32
    replicas = (math.prod(lead),)
    if not isinstance(p, Tensor):
        return like.new_full(replicas, float(p), dtype=dtype)
    return flatten_leading(p.detach().to(dtype), lead, 0, replicas)


def column_norms(A: Tensor, p: float | Tensor) -> Tensor:
    """Return the l_p norm of every column: (..., N, N) -> (..., N).

    A tensor p has the leading dimensions of A.
    """
    exponent = p[..., None, None] if isinstance(p, Tensor) else p
    sums = A.abs().pow(exponent).sum(-2)
    return sums.pow(1 / (p[..., None] if isinstance(p, Tensor) else p))


def column_norm(A: Tensor, p: float | Tensor) -> Tensor:
    """Divide every column of A by its l_p norm; `p` is a number or a tensor over leading dimensions.

    Column j holds the factors of input coordinate j: (A x)_i = sum_j A[i, j] x_j. The induced 1-norm of the result is
    at most n^(1 - 1/p), and exactly 1 at p = 1. As in the paper there is no epsilon: a column of zeros gives NaN.

    >>> column_norm(torch.tensor([[3.0, 1.0], [4.0, 0.0]]), p=2)
    tensor([[0.6000, 1.0000],
            [0.8000, 0.0000]])
    """
    check_rank("column_norm", "A", A, ("N", "N"))
    check_dtypes("column_norm", [("A", A)])
    check_p("column_norm", p)
    if isinstance(p, Tensor):
        p = p.to(A)
        check_p_values("column_norm", p)
        try:
            broadcast_shapes(p.shape, A.shape[:-2])
        except ValueError:
            raise OpsError(
                f"column_norm: p has shape {format_shape(p)}; it must broadcast with the leading dimensions of A "
                f"of shape {format_shape(A)}"
            ) from None
    return A / column_norms(A, p)[..., None, :]
