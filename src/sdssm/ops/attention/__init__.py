"""Attention with rotary positions: softmax(Q K^T / sqrt(S)) V in heads of size S.

Queries and keys are rotated by their positions inside of the operation. Its kernels store neither scores nor weights.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.attention import reference, without_weights
from sdssm.ops.autograd import DifferentiableOperation, needs_gradient
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_range, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import promote_under_autocast

OPERATION = DifferentiableOperation(
    "rotary_attention",
    "attention",
    tensors=("qkv", "positions", "lengths"),
    differentiable=("qkv",),
    results=("y",),
)


def rotary_attention(
    qkv: Tensor,
    positions: Tensor,
    lengths: Tensor | None = None,
    *,
    count: int,
    causal: bool = False,
    end: bool = False,
) -> Tensor:
    """Attend: y_t = sum_s w_ts v_s, where w_t is the softmax over s of <R(p_t) q_t, R(p_s) k_s> / sqrt(S).

    R(p) rotates the adjacent entries (2i, 2i+1) of a vector by the angle p * 10000^(-2i/S).

    Args:
        qkv: Queries, keys and values (..., L, 3, H, S) of H heads of even size S.
        positions: (..., L), integers in 0..count.
        lengths: (...), the length of each row. Later inputs are ignored, and outputs there are 0; None: all are L.
        count: The largest position.
        causal: Whether an input attends only to itself and earlier ones.
        end: Compute only the output at the end of each row.

    Returns:
        The outputs of the heads y (..., L, H, S), or (..., 1, H, S) with `end`.

    >>> import torch
    >>> qkv = torch.tensor([[[0.0, 0.0]], [[0.0, 0.0]], [[3.0, 4.0]]]).expand(2, 3, 1, 2)  # L = 2, the same inputs
    >>> rotary_attention(qkv, torch.tensor([0, 1]), count=1).flatten().tolist()
    [3.0, 4.0, 3.0, 4.0]
    """
    op = "rotary_attention"
    check_rank(op, "qkv", qkv, ("L", "3", "H", "S"))
    (qkv,) = promote_under_autocast(qkv)
    check_dtypes(op, [("qkv", qkv)])
    length, three, _, size = qkv.shape[-4:]
    if three != 3 or size % 2:
        raise OpsError(f"{op}: qkv has shape {format_shape(qkv)}; it must be (..., L, 3, H, S) with an even S")
    if positions.shape[-1:] != (length,):
        raise OpsError(f"{op}: positions has shape {format_shape(positions)}; it must be (..., {length}), as qkv")
    check_range(op, "positions", positions, 0, count, "positions are")
    if lengths is not None:
        check_range(op, "lengths", lengths, 0, length, "lengths are")
    lead = broadcast_leads(op, [("qkv", qkv, 4), ("positions", positions, 1), ("lengths", lengths, 0)])
    chosen = backend.choose(qkv)
    backend.check_backend(op, qkv, 1)
    with backend.no_autocast(qkv):
        torchs = uses_reference(chosen, qkv)
        if (torchs or chosen == "cpu") and chosen != "reference" and not needs_gradient((qkv,)):
            (y,) = call_in_float32(without_weights.attend, qkv, positions, lengths, causal, end, count)
            return y.expand(*lead, *y.shape[-3:])
        if torchs:
            (y,) = call_in_float32(reference.attend, qkv, positions, lengths, causal, end, count)
            return y.expand(*lead, *y.shape[-3:])
        (y,) = OPERATION(
            flatten_leading(qkv, lead, 4, (-1,)),
            flatten_integers(positions, lead, 1, (-1,)),
            flatten_integers(lengths, lead, 0, (-1,)),
            causal,
            end,
            count,
            chosen,
        )
    return y.reshape(*lead, *y.shape[-3:])
